//! Frames whose payload was cut short on the way, though their headers speak of all of it.

use crate::host::{Host, SUM, TC_TAKEN, XDP_DROP, ints};
use crate::namespace::in_namespace;
use crate::packet::Packet;
use crate::star::data;

fn cut(packet: &Packet) -> Packet {
    packet.clone().with(|p| p.payload.truncate(4))
}

#[test]
fn a_contribution_cut_short_is_malformed_and_may_come_again() {
    in_namespace(|| {
        let host = Host::new(3, 0);
        for source in [1, 2] {
            let whole = host.contribution(source, SUM, &ints(&[1, 2]));
            assert_eq!(host.ingress(&cut(&whole)).code, TC_TAKEN);
            assert_eq!(host.counted(), "drop_malformed 1");
            assert_eq!(host.xdp(&cut(&whole)).code, XDP_DROP);
            assert_eq!(host.counted(), "drop_malformed 1");
            host.ingress(&whole);
            assert_eq!(host.counted(), "contributions_folded 1, frames_in 1");
        }
        assert_eq!(data(&host.cell(1), 8), ints(&[2, 4]));
    });
}

#[test]
fn a_result_cut_short_leaves_what_was_posted() {
    in_namespace(|| {
        let host = Host::new(3, 2);
        host.post(SUM, &ints(&[4, 8]));
        let short = cut(&host.result(0, SUM, &ints(&[7, 9])));
        assert_eq!(host.ingress(&short).code, TC_TAKEN);
        assert_eq!(host.xdp(&short).code, XDP_DROP);
        assert_eq!(host.cell(1).ready, 0);
        assert_eq!(
            data(&host.cell(1), 8),
            ints(&[4, 8]),
            "the kernel sends it again when the aggregator asks"
        );
    });
}
