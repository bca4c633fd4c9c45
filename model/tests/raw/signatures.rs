//! Keys with signatures: what is made, checked and taken off between memory and wire, and how errors are told.

use crate::{
    keys::{ALL_RIGHTS, KLM, Key, PAGE, World, klm},
    rig::{Answer, Raw},
    rules,
};
use mlx5_model::{Rule, fw::Refusal};

const UMR: u8 = 0x25;
const SET_PSV: u8 = 0x20;
const DONE: (u8, u8) = (0, 0);
const SIG_ERR: (u8, u8) = (0xc, 0);
const LOCAL_QP_OP_ERR: (u8, u8) = (0xd, 0x02);
const LOCAL_PROT_ERR: (u8, u8) = (0xd, 0x04);

/// `mkey_mask`: length, start, key, rights, free; BSF_EN; EN_SIGERR.
const RANGE_AND_RIGHTS: u32 = 0x203e_2041;
const BSF_EN: u32 = 0x1000;
const EN_SIGERR: u32 = 0x200;

const BLOCK: usize = 512;
const APP_TAG: u16 = 0xabcd;
const REF_TAG: u32 = 0x0123_4567;
/// Of T10-DIF: a seed of ones, and both tags.
const DIF_START: u64 = 0xffff_abcd_0123_4567;
/// Of a CRC of 32 bits: a seed of ones.
const CRC_START: u64 = 0xffff_ffff_0000_0000;
/// `bfs` of CRC32 and CRC32C, anew with each block.
const CRC32: u32 = 0x22;
const CRC32C: u32 = 0x42;

/// The CRC of T10-DIF, bit by bit.
fn crc16(data: &[u8]) -> u16 {
    data.iter().fold(0xffff, |crc, byte| {
        (0..8).fold(crc ^ u16::from(*byte) << 8, |crc, _| crc << 1 ^ if crc >> 15 == 1 { 0x8bb7 } else { 0 })
    })
}

/// A CRC of 32 bits, lowest bit first, bit by bit.
fn crc32(polynomial: u32, data: &[u8]) -> u32 {
    !data.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| crc >> 1 ^ if crc & 1 == 1 { polynomial } else { 0 })
    })
}

const IEEE: u32 = 0xedb8_8320;
const CASTAGNOLI: u32 = 0x82f6_3b78;

/// Data with T10-DIF behind each block.
fn with_dif(data: &[u8]) -> Vec<u8> {
    let blocks = data.chunks(BLOCK).zip(REF_TAG..).map(|(block, reference)| {
        [block, &crc16(block).to_be_bytes(), &APP_TAG.to_be_bytes(), &reference.to_be_bytes()].concat()
    });
    blocks.collect::<Vec<_>>().concat()
}

/// Data with a CRC behind each block.
fn with_crc(polynomial: u32, data: &[u8]) -> Vec<u8> {
    let blocks = data.chunks(BLOCK).map(|block| [block, &crc32(polynomial, block).to_le_bytes()].concat());
    blocks.collect::<Vec<_>>().concat()
}

/// A BSF as libmlx5 writes it; `basic` are the first dword and both sides' format and PSV.
fn bsf(basic: u32, wire: u32, memory: u32) -> Raw {
    Raw::new(64).set(0, 31, 0, basic).set(4, 31, 0, u32::MAX).set(8, 31, 0, wire).set(12, 31, 0, memory)
}

/// With the inline section of one side: T10-DIF with a CRC, all of the application tag, a counting reference tag.
fn dif(bsf: Raw, side: usize) -> Raw {
    bsf.set(side, 31, 0, 0xc000_0000 | u32::from(APP_TAG))
        .set(side + 4, 31, 0, REF_TAG)
        .set(side + 8, 31, 0, 0x0188_0000)
        .set(side + 12, 31, 0, 0x0040_ffff)
}

const WIRE: usize = 32;
const MEMORY: usize = 48;

impl World {
    #[track_caller]
    fn create_psv(&self) -> u32 {
        let create = Raw::cmd(0x600, 16).set(8, 31, 28, 1).set(8, 23, 0, self.pd);
        self.rig.exec(&create, 32).ok().dword(0x10)
    }

    /// A free key for signatures over pieces of memory.
    fn signed_key(&self) -> u32 {
        Key::new(self.pd, KLM).free(4).set(0x0c, 30, 30, 1).set(0x20, 31, 0, 4).create(&self.rig)
    }

    /// Leads a key to `len_bytes` of memory from `offset` on, with a recipe; errors are expected to come to that parity.
    #[track_caller]
    fn sign(&mut self, key: u32, offset: u64, len_bytes: u32, bsf: &Raw, parity: u32) -> (u8, u8) {
        let mut wqe = Raw::new(112)
            .set(0, 31, 31, 1)
            .set(4, 31, 16, 4)
            .set(4, 15, 0, bsf.0.len() as u32 / 16)
            .set(12, 31, 0, RANGE_AND_RIGHTS | BSF_EN | EN_SIGERR)
            .set(48, 14, 10, ALL_RIGHTS)
            .set(52, 31, 8, 0xff_ffff)
            .set(52, 7, 0, key & 0xff)
            .set(48 + 0x0c, 30, 30, 1)
            .set(48 + 0x0c, 26, 26, parity)
            .set64(48 + 0x18, len_bytes.into());
        wqe.0.extend(klm(self.local, self.memory + offset, len_bytes).map(u64::to_be_bytes).concat());
        wqe.0.extend([0; 48]);
        wqe.0.extend(&bsf.0);
        self.post(UMR, key, &wqe.0)
    }

    #[track_caller]
    fn set_psv(&mut self, psv: u32, start: u64) -> (u8, u8) {
        self.post(SET_PSV, 0, &Raw::new(16).set(0, 31, 0, psv).set64(8, start).0)
    }

    /// A CQE that was taken, the last one or so many before.
    fn taken(&self, n_back: u32) -> Vec<u8> {
        let slot = self.cq.ci.wrapping_sub(n_back) & ((1 << self.cq.log) - 1);
        self.rig.read(self.cq.memory + u64::from(slot) * 64, 64)
    }

    /// What else was completed.
    fn next(&mut self) -> Option<Vec<u8>> {
        self.cq.poll(&self.rig, true)
    }
}

/// SIG_ERR: syndrome, domain, expected and actual values, offset.
fn error(cqe: &[u8]) -> (u16, u8, [u32; 4], u64) {
    let word = |at: usize| u32::from_be_bytes(cqe[at..at + 4].try_into().unwrap());
    let offset = u64::from_be_bytes(cqe[0x28..0x30].try_into().unwrap());
    ((word(0x20) >> 16) as u16, cqe[0x23], [word(0x10), word(0x14), word(0x18), word(0x1c)], offset)
}

/// A READ through a key with T10-DIF on the wire gets signatures that memory does not have; a WRITE has them checked and
/// taken off, be they in one packet or in two.
#[test]
fn dif_on_the_wire() {
    let mut world = World::new();
    let (psv, key) = (world.create_psv(), world.signed_key());
    let wire = dif(bsf(0x80ff_0100, psv, 0), WIRE);
    assert_eq!(world.sign(key, 0, 2 * BLOCK as u32, &wire, 1), DONE);
    assert_eq!(world.set_psv(psv, DIF_START), DONE);
    let data = world.fill(0, 2 * BLOCK as u64, 1);
    let stream = with_dif(&data);
    let (plain, n) = ((world.memory + 4 * PAGE, world.local), stream.len() as u32);
    assert_eq!(world.read((0, key), plain, n), DONE);
    assert_eq!(world.bytes(4 * PAGE, stream.len()), stream);
    // From the middle of a block into the middle of its signature; then a signature's rest and what follows.
    assert_eq!(world.read((500, key), plain, 15), DONE);
    assert_eq!(world.bytes(4 * PAGE, 15), stream[500..515]);
    assert_eq!(world.read((515, key), plain, 100), DONE);
    assert_eq!(world.bytes(4 * PAGE, 100), stream[515..615]);
    // Data of the two blocks, and not a byte more.
    assert_eq!(world.read((1, key), plain, n), (0xd, 0x13));
    world.another_qp();

    world.rig.write(world.memory, &[0; 2 * BLOCK]);
    world.rig.write(world.memory + 4 * PAGE, &stream);
    assert_eq!(world.write((0, key), plain, n), DONE);
    assert_eq!(world.bytes(0, data.len()), data);
    assert_eq!(world.next(), None);
    // One byte of each part of the second signature is wrong in turn; the data come all the same.
    let reference = REF_TAG + 1;
    let guard = u32::from(crc16(&data[BLOCK..]));
    let tags = guard << 16 | u32::from(APP_TAG);
    let mut parity = 1;
    for (at, syndrome, found) in [
        (512, 0x2000, [tags ^ 0x0100_0000, reference]),
        (515, 0x1000, [tags ^ 1, reference]),
        (519, 0x0800, [tags, reference ^ 1]),
    ] {
        world.rig.write(world.memory + 4 * PAGE, &stream);
        world.rig.write(world.memory + 4 * PAGE + 520 + at, &[stream[520 + at as usize] ^ 1]);
        assert_eq!(world.write((0, key), plain, n), SIG_ERR);
        // `post` took the first completion; the WRITE's own is next.
        let cqe = world.next().unwrap();
        assert_eq!((cqe[63] >> 4, cqe[0x38]), (0, 8), "the WRITE is done");
        let told = world.taken(2);
        let values = [found[0], tags, found[1], reference];
        assert_eq!(error(&told), (syndrome, 0, values, 520 + 512), "at {at}");
        assert_eq!(told[0x24..0x28], key.to_be_bytes());
        assert_eq!(world.bytes(0, data.len()), data);
        parity ^= 1;
        assert_eq!(world.sign(key, 0, 2 * BLOCK as u32, &wire, parity), DONE);
    }
    world.rig.model.assert_clean();
}

/// CRCs in memory are checked and taken off on the way out, and made on the way in; an error is told once, until software
/// says that it has looked.
#[test]
fn crcs_in_memory() {
    for (format, polynomial) in [(CRC32, IEEE), (CRC32C, CASTAGNOLI)] {
        let mut world = World::new();
        let (psv, key) = (world.create_psv(), world.signed_key());
        let memory = bsf(0x80f0_0001, 0, format << 24 | psv);
        let data = world.fill(0, 2 * BLOCK as u64, 2);
        let stored = with_crc(polynomial, &data);
        assert_eq!(world.sign(key, 2 * PAGE, stored.len() as u32, &memory, 1), DONE);
        assert_eq!(world.set_psv(psv, CRC_START), DONE);
        let plain = |world: &World, at: u64| (world.memory + at, world.local);
        let from = plain(&world, 0);
        assert_eq!(world.write((0, key), from, data.len() as u32), DONE);
        assert_eq!(world.bytes(2 * PAGE, stored.len()), stored);
        let into = plain(&world, 4 * PAGE);
        assert_eq!(world.read((0, key), into, data.len() as u32), DONE);
        assert_eq!(world.bytes(4 * PAGE, data.len()), data);
        world.rig.write(world.memory + 2 * PAGE + 7, &[!data[7]]);
        assert_eq!(world.read((1, key), into, 100), DONE);
        assert_eq!(world.next(), None, "the block was not read to its end");
        assert_eq!(world.read((100, key), into, 500), SIG_ERR);
        let told = world.taken(1);
        let mut changed = data[..BLOCK].to_vec();
        changed[7] = !changed[7];
        let values = [crc32(polynomial, &data[..BLOCK]), crc32(polynomial, &changed), 0, 0];
        assert_eq!(error(&told), (0x2000, 1, values, BLOCK as u64));
        assert_eq!(world.next().map(|cqe| cqe[63] >> 4), Some(0));
        assert_eq!(world.read((100, key), into, 500), DONE);
        assert_eq!(world.next(), None, "told already");
        assert_eq!(world.sign(key, 2 * PAGE, stored.len() as u32, &memory, 0), DONE);
        assert_eq!(world.read((100, key), into, 500), SIG_ERR);
        assert!(world.next().is_some());
        // No byte of the signature is asked for.
        let unchecked = bsf(0x8000_0001, 0, format << 24 | psv);
        assert_eq!(world.sign(key, 2 * PAGE, stored.len() as u32, &unchecked, 1), DONE);
        assert_eq!(world.read((100, key), into, 500), DONE);
        assert_eq!(world.next(), None);
        world.rig.model.assert_clean();
    }
}

/// With the same blocks on both sides, some bytes of a signature are copied and the others made.
#[test]
fn signatures_pass_through() {
    let mut world = World::new();
    let [memory_psv, wire_psv] = [0, 1].map(|_| world.create_psv());
    let key = world.signed_key();
    // The guard is checked and made anew; the tags are copied.
    let both = dif(dif(bsf(0x90c0_3f01, wire_psv, memory_psv), WIRE), MEMORY);
    let data = world.fill(0, 2 * BLOCK as u64, 3);
    let mut stream = with_dif(&data);
    (stream[514], stream[517]) = (0x11, 0x22);
    assert_eq!(world.sign(key, 2 * PAGE, stream.len() as u32, &both, 1), DONE);
    assert_eq!([world.set_psv(memory_psv, DIF_START), world.set_psv(wire_psv, DIF_START)], [DONE; 2]);
    world.rig.write(world.memory + 2 * PAGE, &stream);
    let (plain, n) = ((world.memory + 4 * PAGE, world.local), stream.len() as u32);
    assert_eq!(world.read((0, key), plain, n), DONE);
    assert_eq!(world.bytes(4 * PAGE, stream.len()), stream);
    world.rig.write(world.memory + 2 * PAGE, &[0; 2 * BLOCK + 16]);
    assert_eq!(world.write((0, key), plain, n), DONE);
    assert_eq!(world.bytes(2 * PAGE, stream.len()), stream);
    assert_eq!(world.next(), None);
    // A wrong guard is told, and replaced.
    world.rig.write(world.memory + 4 * PAGE + 512, &[!stream[512]]);
    assert_eq!(world.write((0, key), plain, n), SIG_ERR);
    assert!(world.next().is_some());
    assert_eq!(world.bytes(2 * PAGE, stream.len()), stream);
    world.rig.model.assert_clean();
}

/// `drain_sigerr`: what is posted behind a request whose data are wrong waits, and may be replaced.
#[test]
fn a_queue_is_drained_at_a_wrong_signature() {
    let mut world = World::new();
    let (psv, key) = (world.create_psv(), world.signed_key());
    assert_eq!(world.sign(key, 0, BLOCK as u32 + 4, &bsf(0x80f0_0001, 0, CRC32 << 24 | psv), 1), DONE);
    assert_eq!(world.set_psv(psv, CRC_START), DONE);
    let mut qp = world.rig.create_qp(world.pd, world.uar, &world.cq, 5);
    let init = Raw::new(232).set(0x18 + 0x24, 23, 16, 1).set(0x90, 15, 13, 0b111);
    world.rig.modify(0x502, &qp, 0, &init).ok();
    world.rig.modify(0x50e, &qp, 0x800, &Raw::new(232).set(4, 26, 26, 1).set(0x18 + 0x24, 23, 16, 1)).ok();
    world.rig.establish(&qp, world.peer.number, world.mac, world.gid);
    world.rig.modify(0x50a, &world.peer, 0, &Raw::new(232)).ok();
    world.rig.connect(&world.peer, qp.number, world.mac, world.gid);
    std::mem::swap(&mut world.qp, &mut qp);

    world.fill(0, BLOCK as u64 + 4, 4);
    let remote = Key::new(world.pd, KLM).range(0, PAGE, 0);
    let remote = remote.list(&klm(world.local, world.memory + 2 * PAGE, PAGE as u32)).create(&world.rig);
    let write = |local: (u64, u32), len: u32| {
        let to = Raw::new(32).set64(0, 0).set(8, 31, 0, remote);
        to.set(16, 31, 0, len).set(20, 31, 0, local.1).set64(24, local.0).0
    };
    let first = write((0, key), BLOCK as u32);
    let _unrung = world.qp.long_wqe(&world.rig, 0x08, 0, &first);
    let second = write((world.memory, world.local), 8);
    let outcome = world.post(0x08, 0, &second);
    assert_eq!(outcome, SIG_ERR);
    assert_eq!(world.next().map(|cqe| (cqe[63] >> 4, cqe[0x3d])), Some((0, 0)), "the first is done");
    assert_eq!(world.next(), None, "the second is not");
    let state = |world: &World| {
        let query = Raw::cmd(0x50b, 16).set(8, 23, 0, world.qp.number);
        world.rig.exec(&query, 272).ok().dword(0x18) >> 28
    };
    assert_eq!(state(&world), 5, "SQD");
    // The second becomes a NOP that asks for a completion.
    let slot = world.qp.send + 64;
    world.rig.write(slot + 3, &[0]);
    world.rig.modify(0x50c, &world.qp, 0, &Raw::new(232)).ok();
    while world.rig.model.step() {}
    assert_eq!(world.next().map(|cqe| (cqe[63] >> 4, cqe[0x38], cqe[0x3d])), Some((0, 0, 1)));
    assert_eq!((state(&world), world.next()), (3, None));
    world.rig.model.assert_clean();
}

#[test]
fn what_is_refused() {
    let mut world = World::new();
    let create = |world: &World, n: u32, pd: u32| -> Answer {
        world.rig.exec(&Raw::cmd(0x600, 16).set(8, 31, 28, n).set(8, 23, 0, pd), 32)
    };
    assert_eq!(create(&world, 0, world.pd).syndrome(), Refusal::PSV_NUMBER.syndrome);
    assert_eq!(create(&world, 5, world.pd).syndrome(), Refusal::PSV_NUMBER.syndrome);
    assert_eq!(create(&world, 1, world.pd + 9).syndrome(), Refusal::NO_SUCH_PD.syndrome);
    assert_eq!(rules(&world.rig), [Rule::ObjectExists]);
    let four = create(&world, 4, world.pd).ok();
    let all = [0x10, 0x14, 0x18, 0x1c].map(|at| four.dword(at));
    assert!(all.windows(2).all(|pair| pair[0] != pair[1]));
    let destroy = |world: &World, psv: u32| world.rig.run(Raw::cmd(0x601, 16).set(8, 23, 0, psv)).syndrome();
    assert_eq!(destroy(&world, all[3]), 0);
    assert_eq!(destroy(&world, all[3]), Refusal::NO_SUCH_OBJECT.syndrome);
    assert_eq!(rules(&world.rig), [Rule::ObjectExists]);

    assert_eq!(world.set_psv(all[3], 0), LOCAL_QP_OP_ERR, "it is gone");
    world.another_qp();
    // Another protection domain's.
    let other = create(&world, 1, world.rig.alloc_pd()).ok().dword(0x10);
    assert_eq!(world.set_psv(other, 0), LOCAL_QP_OP_ERR);
    world.another_qp();
    let key = world.signed_key();
    for (bsf, what) in [
        (bsf(0x80f0_0001, 0, 0x5200_0000 | all[0]), "CRC64"),
        (bsf(0x80f0_0001, 0, 0x2000_0000 | all[0]), "a CRC over all blocks"),
        (bsf(0x80f0_0005, 0, 0x2200_0000 | all[0]), "a block size"),
        (bsf(0x80f0_0001, 0, all[0]), "no inline section"),
        (bsf(0xc0f0_0001, 0, 0x2200_0000 | all[0]), "encryption"),
        (bsf(0x80f0_0001, 0, 0x2200_0000 | all[0]).set(16, 0, 0, 1), "an extension"),
    ] {
        assert_eq!(world.sign(key, 0, 516, &bsf, 1), LOCAL_QP_OP_ERR, "{what}");
        world.another_qp();
    }
    world.rig.model.assert_clean();
    let good = bsf(0x80f0_0001, 0, CRC32 << 24 | other);
    let long = Raw([&good.0[..], &[0; 64]].concat());
    assert_eq!(world.sign(key, 0, 516, &long, 1), LOCAL_QP_OP_ERR, "longer than the key has room for");
    assert_eq!(rules(&world.rig), [Rule::UmrListFits]);
    world.another_qp();
    // A PSV of another domain is none for the key's data.
    assert_eq!(world.sign(key, 0, 516, &good, 1), DONE);
    let remote = Key::new(world.pd, KLM).range(0, PAGE, 0);
    let remote = remote.list(&klm(world.local, world.memory + 2 * PAGE, PAGE as u32)).create(&world.rig);
    assert_eq!(world.write((0, remote), (0, key), 512), LOCAL_PROT_ERR);
    world.rig.model.assert_clean();
}
