//! The software ConnectX over a socket, as rust-vmm's own client sees it: nothing here but bytes of the
//! protocol and of the device.

use mlx5_direct::backend::pci::EventFd;
use mlx5_model::{Bar, Model, pci::plain_pages};
use mlx5_vfio_user::{Gone, ServeError, Service};
use std::{
    fs::{self, File},
    io::{Read, Write},
    os::{
        fd::{AsFd, AsRawFd},
        unix::{fs::FileExt, net::UnixStream, process::ExitStatusExt},
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};
use vfio_bindings::bindings::vfio::*;
use vfio_user::Client;

const DEADLINE: Duration = Duration::from_secs(20);
const BAR0: u32 = VFIO_PCI_BAR0_REGION_INDEX;
const CONFIG: u32 = VFIO_PCI_CONFIG_REGION_INDEX;
const BY_EVENTFD: u32 = VFIO_IRQ_SET_ACTION_TRIGGER | VFIO_IRQ_SET_DATA_EVENTFD;

const IOVA: u64 = 0x1_0000_0000;
const MEMORY_BYTES: u64 = 64 << 20;
/// Where it begins in its file.
const FILE_OFFSET: u64 = 0x3000;
const MAILBOXES: u64 = IOVA + 0x1000;
const TOKEN: u8 = 0x5a;

/// Tells the child process of `a_client_is_killed` where to connect.
const VICTIM: &str = "MLX5_TEST_VICTIM_SOCKET";

fn temporary(what: &str) -> PathBuf {
    static N: AtomicU32 = AtomicU32::new(0);
    let n = N.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("mlx5-{what}-{}-{n}", std::process::id()))
}

/// A file without a name.
fn unnamed(len_bytes: u64) -> File {
    let path = temporary("memory");
    let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    fs::remove_file(&path).unwrap();
    file.set_len(len_bytes).unwrap();
    file
}

/// What the server said of its clients.
#[derive(Debug)]
struct Served {
    gone: Vec<Gone>,
    lines: Vec<String>,
}

/// Serves `n_clients` of a card while `clients` runs.
fn serve(config: &str, n_clients: usize, clients: impl FnOnce(&Path, &Model)) -> Served {
    let model = Model::new(config.parse().unwrap()).unwrap();
    let path = temporary("socket");
    let service = Service::bind(&path, &model, 0).unwrap();
    let server = thread::spawn(move || {
        let mut lines = Vec::new();
        let mut serve = |_| service.serve(&mut |line| lines.push(line.to_owned())).unwrap();
        let gone = (0..n_clients).map(&mut serve).collect();
        Served { gone, lines }
    });
    clients(&path, &model);
    wait("the server's end", || server.is_finished());
    let served = server.join().unwrap();
    assert!(!path.exists(), "the socket is left behind");
    assert_eq!(model.function(0).unwrap().dma().n_mappings(), 0);
    model.assert_clean();
    served
}

#[track_caller]
fn wait(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < DEADLINE, "waited for {what}");
        thread::sleep(Duration::from_micros(200));
    }
}

/// A command's bytes.
fn cmd(opcode: u16, len_bytes: usize, fields: &[(usize, u32)]) -> Vec<u8> {
    let mut bytes = vec![0; len_bytes];
    bytes[..2].copy_from_slice(&opcode.to_be_bytes());
    for (at, value) in fields {
        bytes[*at..*at + 4].copy_from_slice(&value.to_be_bytes());
    }
    bytes
}

/// A driver of a few lines.
struct Driver {
    client: Client,
    memory: File,
    next: u64,
}

impl Driver {
    /// Connects, gives memory and waits for firmware.
    fn new(path: &Path) -> Self {
        let mut client = Client::new(path).unwrap();
        let memory = unnamed(FILE_OFFSET + MEMORY_BYTES);
        client.dma_map(FILE_OFFSET, IOVA, MEMORY_BYTES, memory.as_raw_fd()).unwrap();
        client.region_write(CONFIG, 4, &[6, 0]).unwrap();
        let mut driver = Self { client, memory, next: IOVA + 0x10_0000 };
        wait("firmware", || driver.register(0x1fc) >> 31 == 0);
        driver.set_register(0x10, (IOVA >> 32) as u32);
        driver.set_register(0x14, IOVA as u32);
        driver
    }

    fn register(&mut self, offset: u64) -> u32 {
        let mut bytes = [0; 4];
        self.client.region_read(BAR0, offset, &mut bytes).unwrap();
        u32::from_be_bytes(bytes)
    }

    fn set_register(&mut self, offset: u64, value: u32) {
        self.client.region_write(BAR0, offset, &value.to_be_bytes()).unwrap();
    }

    fn write(&self, iova: u64, bytes: &[u8]) {
        self.memory.write_all_at(bytes, FILE_OFFSET + iova - IOVA).unwrap();
    }

    fn read(&self, iova: u64, len_bytes: usize) -> Vec<u8> {
        let mut bytes = vec![0; len_bytes];
        self.memory.read_exact_at(&mut bytes, FILE_OFFSET + iova - IOVA).unwrap();
        bytes
    }

    /// Chains the mailboxes that `len_bytes` need beyond the 16 of the entry, and fills them.
    fn chain(&self, first: u64, data: &[u8], len_bytes: usize) -> u64 {
        let n_blocks = len_bytes.saturating_sub(16).div_ceil(512);
        for block in 0..n_blocks {
            let at = first + block as u64 * 1024;
            let mut bytes = vec![0; 576];
            let part: Vec<u8> = data.iter().skip(16 + block * 512).take(512).copied().collect();
            bytes[..part.len()].copy_from_slice(&part);
            let next = if block + 1 < n_blocks { at + 1024 } else { 0 };
            bytes[560..568].copy_from_slice(&next.to_be_bytes());
            bytes[568..572].copy_from_slice(&(block as u32).to_be_bytes());
            bytes[573] = TOKEN;
            self.write(at, &bytes);
        }
        if n_blocks == 0 { 0 } else { first }
    }

    /// Executes a command in slot 0, polled: its output.
    #[track_caller]
    fn run(&mut self, input: &[u8], output_len: usize) -> Vec<u8> {
        let output = MAILBOXES + 0x8000;
        let mut entry = [0; 64];
        entry[0] = 7;
        entry[4..8].copy_from_slice(&(input.len() as u32).to_be_bytes());
        entry[8..16].copy_from_slice(&self.chain(MAILBOXES, input, input.len()).to_be_bytes());
        entry[16..32].copy_from_slice(&input[..16]);
        entry[0x30..0x38].copy_from_slice(&self.chain(output, &[], output_len).to_be_bytes());
        entry[0x38..0x3c].copy_from_slice(&(output_len as u32).to_be_bytes());
        (entry[0x3c], entry[0x3f]) = (TOKEN, 1);
        self.write(IOVA, &entry);
        self.set_register(0x18, 1);
        wait("a command", || self.read(IOVA + 63, 1)[0] & 1 == 0);
        let entry = self.read(IOVA, 64);
        assert_eq!((entry[63], entry[0x20]), (0, 0), "command {input:x?} failed: {entry:x?}");
        let mut bytes = entry[0x20..0x30].to_vec();
        for block in 0..output_len.saturating_sub(16).div_ceil(512) as u64 {
            bytes.extend(self.read(output + block * 1024, 512));
        }
        bytes
    }

    /// Gives the pages that firmware asks for at a stage of its start.
    fn give_pages(&mut self, stage: u32) {
        let n = dword(&self.run(&cmd(0x107, 16, &[(4, stage)]), 16), 12);
        let mut input = cmd(0x108, 16, &[(4, 1), (12, n)]);
        for page in 0..u64::from(n) {
            input.extend((self.next + page * 0x1000).to_be_bytes());
        }
        self.next += u64::from(n) * 0x1000;
        self.run(&input, 16);
    }
}

fn dword(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap())
}

/// ENABLE_HCA and QUERY_ISSI, whose answer comes in a mailbox.
fn first_commands(driver: &mut Driver) {
    driver.run(&cmd(0x104, 16, &[]), 16);
    let issi = driver.run(&cmd(0x10a, 16, &[]), 112);
    assert_eq!(dword(&issi, 0x6c) & 2, 2, "ISSI 1 is offered");
}

#[test]
fn identity_registers_and_regions() {
    let served = serve("part=cx6", 1, |path, _| {
        let mut client = Client::new(path).unwrap();
        let mut ids = [0; 4];
        client.region_read(CONFIG, 0, &mut ids).unwrap();
        assert_eq!(ids, [0xb3, 0x15, 0x1b, 0x10]);
        let bar = client.region(BAR0).unwrap();
        assert_eq!(bar.size, 32 << 20);
        let areas: Vec<_> =
            bar.sparse_areas.iter().map(|area| area.offset..area.offset + area.size).collect();
        assert_eq!(areas, [plain_pages(Bar::Sparse)]);
        assert!(bar.file_offset.is_some());
        let msix = client.get_irq_info(VFIO_PCI_MSIX_IRQ_INDEX).unwrap();
        assert_eq!((msix.count, msix.flags), (16, VFIO_IRQ_INFO_EVENTFD));
        assert_eq!(client.get_irq_info(VFIO_PCI_INTX_IRQ_INDEX).unwrap().count, 0);

        // Registers answer once memory is enabled.
        let mut revision = [0; 8];
        client.region_read(BAR0, 0, &mut revision).unwrap();
        assert_eq!(revision, [0xff; 8]);
        client.region_write(CONFIG, 4, &[6, 0]).unwrap();
        client.region_read(BAR0, 0, &mut revision).unwrap();
        assert_eq!(revision[4..6], [0, 5], "cmdif_rev");
    });
    assert_eq!((served.gone, served.lines), (vec![Gone::Closed], vec![]));
}

#[test]
fn commands_before_and_after_a_reset() {
    serve("", 1, |path, _| {
        let mut driver = Driver::new(path);
        first_commands(&mut driver);
        driver.client.reset().unwrap();
        wait("firmware", || driver.register(0x1fc) >> 31 == 0);
        driver.set_register(0x10, (IOVA >> 32) as u32);
        driver.set_register(0x14, IOVA as u32);
        first_commands(&mut driver);
        driver.client.dma_unmap(IOVA, MEMORY_BYTES).unwrap();
    });
}

/// The whole way of an interrupt: an event queue made by commands, armed in a UAR page, a port that goes down,
/// an entry in the client's memory, the client's eventfd.
fn interrupt(config: &str) {
    serve(config, 1, |path, model| {
        let mut driver = Driver::new(path);
        first_commands(&mut driver);
        driver.run(&cmd(0x10b, 16, &[(8, 1)]), 16);
        driver.give_pages(1);
        driver.give_pages(2);
        driver.run(&cmd(0x102, 16, &[]), 16);
        let uar = dword(&driver.run(&cmd(0x802, 16, &[]), 16), 8) & 0xff_ffff;

        let eventfd = EventFd::new().unwrap();
        let fd = eventfd.as_fd().as_raw_fd();
        driver.client.set_irqs(VFIO_PCI_MSIX_IRQ_INDEX, BY_EVENTFD, 3, 1, &[fd]).unwrap();

        let queue = driver.next;
        driver.next += 0x1000;
        driver.write(queue, &[1; 4096]); // owned by the device
        let port_change = 1 << 9;
        let fields = [(0x1c, 6 << 24 | uar), (0x24, 3), (0x5c, port_change)];
        let mut create = cmd(0x301, 272, &fields);
        create.extend(queue.to_be_bytes());
        let eqn = dword(&driver.run(&create, 16), 8) & 0xff;

        let register = u64::from(uar) * 4096 + 0x40;
        let arm = (eqn << 24).to_be_bytes();
        let bar = driver.client.region(BAR0).unwrap();
        let mapped =
            bar.sparse_areas.iter().any(|area| (area.offset..area.offset + area.size).contains(&register));
        match bar.file_offset.as_ref().filter(|_| mapped) {
            Some(pages) => {
                // As a store to the mapped page would.
                let pages = pages.file().try_clone().unwrap();
                pages.write_all_at(&arm, register).unwrap();
            }
            None => driver.client.region_write(BAR0, register, &arm).unwrap(),
        }
        // A mapped doorbell is seen when the card looks.
        thread::sleep(Duration::from_millis(20));
        assert!(!eventfd.clear());
        model.set_port(0, false);
        assert!(eventfd.wait(DEADLINE).unwrap(), "no interrupt");
        assert_eq!(driver.read(queue + 1, 1), [9], "PORT_CHANGE");
    });
}

#[test]
fn interrupt_with_mapped_doorbells() {
    interrupt("bar=mapped");
}

/// The first page is the one of the event queues, and trapped.
#[test]
fn interrupt_with_sparse_doorbells() {
    interrupt("bar=sparse");
}

#[test]
fn interrupt_with_trapped_doorbells() {
    interrupt("bar=trapped");
}

#[test]
fn refusals_are_told_in_words() {
    let served = serve("bar=trapped,vectors=4", 1, |path, _| {
        let mut client = Client::new(path).unwrap();
        assert!(client.region(BAR0).unwrap().sparse_areas.is_empty());
        let file = unnamed(0x2000);
        let fd = file.as_raw_fd();
        client.dma_map(0, 0x1000, 0x2000, fd).unwrap();
        client.dma_map(0, 0x2000, 0x1000, fd).unwrap(); // overlaps
        client.dma_map(0x1000, 0x10_0000, 0x2000, fd).unwrap(); // longer than the file
        client.dma_map(0, 0xfee0_0000, 0x1000, fd).unwrap(); // interrupts live there
        client.set_irqs(VFIO_PCI_MSIX_IRQ_INDEX, BY_EVENTFD, 4, 1, &[fd]).unwrap();
        let trigger = VFIO_IRQ_SET_ACTION_TRIGGER | VFIO_IRQ_SET_DATA_NONE;
        client.set_irqs(VFIO_PCI_MSIX_IRQ_INDEX, trigger, 0, 1, &[]).unwrap();
    });
    let expected = [
        "overlaps the mapping at IOVA 0x1000",
        "the file has 8192 bytes",
        "leaves the IOVA ranges",
        "MSI-X (index 2) has 4",
        "set by eventfd",
    ];
    assert_eq!(served.lines.len(), expected.len(), "{:?}", served.lines);
    for (line, expected) in served.lines.iter().zip(expected) {
        assert!(line.contains(expected), "{line}: {expected}");
    }
}

#[test]
fn what_is_not_the_protocol_ends_one_session() {
    let served = serve("", 2, |path, _| {
        // A version message whose text does not end.
        let mut stream = UnixStream::connect(path).unwrap();
        let mut message = vec![1, 0, 1, 0, 24, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0];
        message.extend(b"{{{{");
        stream.write_all(&message).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        assert_eq!(stream.read(&mut [0; 16]).unwrap_or(0), 0, "it was answered");
        first_commands(&mut Driver::new(path));
    });
    assert!(matches!(served.gone[..], [Gone::Broken(_), Gone::Closed]), "{:?}", served.gone);
}

/// Connects as a process of its own would, says so, and waits for its end.
#[test]
fn a_victim() {
    let Some(path) = std::env::var_os(VICTIM) else { return };
    let mut driver = Driver::new(Path::new(&path));
    first_commands(&mut driver);
    println!("ready");
    thread::sleep(DEADLINE);
}

/// Case L10, as far as the device goes: a client is killed with memory mapped, and the next one finds the card
/// as new.
#[test]
fn a_client_is_killed() {
    let served = serve("", 2, |path, model| {
        let mut victim = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "a_victim", "--nocapture"])
            .env(VICTIM, path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (mut said, mut stdout) = (Vec::new(), victim.stdout.take().unwrap());
        while !said.ends_with(b"ready\n") {
            let mut byte = [0];
            assert_eq!(stdout.read(&mut byte).unwrap(), 1, "{}", String::from_utf8_lossy(&said));
            said.push(byte[0]);
        }
        assert_eq!(model.function(0).unwrap().dma().n_mappings(), 1);
        victim.kill().unwrap();
        assert_eq!(victim.wait().unwrap().signal(), Some(9));
        first_commands(&mut Driver::new(path));
    });
    assert_eq!(served.gone.len(), 2);
}

#[test]
fn the_path() {
    let model = Model::new("".parse().unwrap()).unwrap();
    let path = temporary("path");
    fs::write(&path, "a file").unwrap();
    assert!(matches!(Service::bind(&path, &model, 0), Err(ServeError::Taken(_))));
    fs::remove_file(&path).unwrap();
    let error = Service::bind(&path, &model, 1).unwrap_err();
    assert!(error.to_string().contains("no function 1"), "{error}");

    // A server that was killed leaves its socket.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let service = Service::bind(&path, &model, 0).unwrap();
    assert!(matches!(Service::bind(&path, &model, 0), Err(ServeError::Taken(_))));
    drop(service);
    assert!(!path.exists());
}
