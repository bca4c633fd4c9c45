//! Answers "who has this address?" for a port whose driver has no IP stack: ARP (RFC 826) and neighbour solicitation
//! (RFC 4861). An aid of the wire, not of the device: a card knows nothing of either.

use super::packet::{ETHERTYPE_IPV4, ETHERTYPE_IPV6, ones_sum};

const ETHERTYPE_ARP: [u8; 2] = [0x08, 0x06];
const ARP_REQUEST: [u8; 2] = [0, 1];
const ARP_REPLY: [u8; 2] = [0, 2];
const ICMPV6: u8 = 58;
const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
/// RFC 4861: what was forwarded is not from a neighbour.
const NOT_FORWARDED: u8 = 255;
/// Without the FCS.
const SHORTEST_FRAME_BYTES: usize = 60;

/// The answer to `frame`, if it asks for an address that `owner` knows the MAC of. IPv4 addresses are given as GIDs.
pub(crate) fn answer(frame: &[u8], owner: impl Fn([u8; 16]) -> Option<[u8; 6]>) -> Option<Vec<u8>> {
    let mut answer = match *frame.get(12..14)?.first_chunk()? {
        ETHERTYPE_ARP => arp(frame.get(14..42)?.first_chunk()?, owner)?,
        ethertype if ethertype == ETHERTYPE_IPV6.to_be_bytes() => solicitation(frame.get(14..)?, owner)?,
        _ => return None,
    };
    if answer.len() < SHORTEST_FRAME_BYTES {
        answer.resize(SHORTEST_FRAME_BYTES, 0);
    }
    Some(answer)
}

fn arp(request: &[u8; 28], owner: impl Fn([u8; 16]) -> Option<[u8; 6]>) -> Option<Vec<u8>> {
    let [i0, i1] = ETHERTYPE_IPV4.to_be_bytes();
    // Ethernet and IPv4, addresses of 6 and 4 bytes.
    let kind = [0, 1, i0, i1, 6, 4];
    if request[..6] != kind || request[6..8] != ARP_REQUEST {
        return None;
    }
    let (asker, wanted) = (&request[8..18], &request[24..28]);
    let mut gid = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 0, 0];
    gid[12..].copy_from_slice(wanted);
    let mac = owner(gid)?;
    Some([&asker[..6], &mac, &ETHERTYPE_ARP, &kind, &ARP_REPLY, &mac, wanted, asker].concat())
}

fn solicitation(packet: &[u8], owner: impl Fn([u8; 16]) -> Option<[u8; 6]>) -> Option<Vec<u8>> {
    let (head, rest) = packet.split_first_chunk::<40>()?;
    let len = usize::from(u16::from_be_bytes([head[4], head[5]]));
    let message = rest.get(..len)?;
    let source: [u8; 16] = *head[8..].first_chunk()?;
    let wanted: [u8; 16] = *message.get(8..)?.first_chunk()?;
    if head[6] != ICMPV6 || head[7] != NOT_FORWARDED || message[0] != SOLICITATION {
        return None;
    }
    let mac = owner(wanted)?;
    // Who has no address yet is told with all others, and did not solicit.
    let unspecified = source == [0; 16];
    let all_nodes = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    let (to, flags) = if unspecified { (all_nodes, 0x20) } else { (source, 0x60) };
    let to_mac: [u8; 6] = if unspecified {
        [0x33, 0x33, 0, 0, 0, 1]
    } else {
        // The option with the asker's link-layer address; it is there unless the frame came from a stranger.
        let option = message.get(24..32)?;
        if option[..2] != [1, 1] {
            return None;
        }
        *option[2..].first_chunk()?
    };
    let mut message = [&[ADVERTISEMENT, 0, 0, 0, flags, 0, 0, 0], &wanted[..], &[2, 1], &mac].concat();
    let len = message.len() as u8;
    let pseudo = [&wanted[..], &to, &[0, 0, 0, len, 0, 0, 0, ICMPV6], &message].concat();
    let sum = !ones_sum(&pseudo);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    let head = [0x60, 0, 0, 0, 0, len, ICMPV6, NOT_FORWARDED];
    Some([&to_mac[..], &mac, &ETHERTYPE_IPV6.to_be_bytes(), &head, &wanted, &to, &message].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: [u8; 6] = [2, 0, 0, 0, 0, 9];
    const ASKER: [u8; 6] = [2, 0, 0, 0, 0, 7];
    const OWN_IPV4: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 2];
    const OWN_IPV6: [u8; 16] = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9];
    const PEER_IPV6: [u8; 16] = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7];

    fn owner(gid: [u8; 16]) -> Option<[u8; 6]> {
        (gid == OWN_IPV4 || gid == OWN_IPV6).then_some(MAC)
    }

    fn arp_request(wanted: u8) -> Vec<u8> {
        let who_has = [0, 1, 8, 0, 6, 4, 0, 1];
        let broadcast = [0xff; 6];
        [&broadcast[..], &ASKER, &[8, 6], &who_has, &ASKER, &[10, 0, 0, 1], &[0; 6], &[10, 0, 0, wanted]]
            .concat()
    }

    fn solicitation_from(source: [u8; 16], wanted: [u8; 16]) -> Vec<u8> {
        let group = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, 0, 0, 9];
        let head = [0x60, 0, 0, 0, 0, 32, ICMPV6, 255];
        let message = [&[SOLICITATION, 0, 0, 0, 0, 0, 0, 0], &wanted[..], &[1, 1], &ASKER].concat();
        [&[0x33, 0x33, 0xff, 0, 0, 9][..], &ASKER, &[0x86, 0xdd], &head, &source, &group, &message].concat()
    }

    #[test]
    fn arp_for_an_own_address() {
        let reply = answer(&arp_request(2), owner).unwrap();
        let is_at = [0, 1, 8, 0, 6, 4, 0, 2];
        let expected =
            [&ASKER[..], &MAC, &[8, 6], &is_at, &MAC, &[10, 0, 0, 2], &ASKER, &[10, 0, 0, 1]].concat();
        assert_eq!(reply[..42], expected);
        assert_eq!(reply.len(), 60);
        assert_eq!(answer(&arp_request(3), owner), None);
        assert_eq!(answer(&reply, owner), None, "replies are not asked");
    }

    #[test]
    fn solicitation_for_an_own_address() {
        let reply = answer(&solicitation_from(PEER_IPV6, OWN_IPV6), owner).unwrap();
        assert_eq!((&reply[..6], &reply[6..12]), (&ASKER[..], &MAC[..]));
        assert_eq!((reply[54], reply[58]), (ADVERTISEMENT, 0x60));
        assert_eq!((&reply[22..38], &reply[38..54]), (&OWN_IPV6[..], &PEER_IPV6[..]));
        assert_eq!(reply[78..86], [2, 1, 2, 0, 0, 0, 0, 9]);
        let pseudo = [&reply[22..54], &[0, 0, 0, 32, 0, 0, 0, ICMPV6], &reply[54..]].concat();
        assert_eq!(ones_sum(&pseudo), 0xffff, "checksum");
        assert_eq!(answer(&solicitation_from(PEER_IPV6, PEER_IPV6), owner), None);
    }

    #[test]
    fn an_asker_without_an_address_is_told_with_all() {
        let reply = answer(&solicitation_from([0; 16], OWN_IPV6), owner).unwrap();
        assert_eq!((reply[..6].to_vec(), reply[58]), (vec![0x33, 0x33, 0, 0, 0, 1], 0x20));
    }

    #[test]
    fn cut_off_frames_have_no_answer() {
        for whole in [arp_request(2), solicitation_from(PEER_IPV6, OWN_IPV6)] {
            for len in 0..whole.len() {
                assert_eq!(answer(&whole[..len], owner), None, "{len}");
            }
        }
        let mut forwarded = solicitation_from(PEER_IPV6, OWN_IPV6);
        forwarded[21] = 254;
        assert_eq!(answer(&forwarded, owner), None);
    }
}
