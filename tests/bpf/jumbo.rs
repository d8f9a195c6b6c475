//! The programs for chunks of jumbo frames.

use foldback::bindings as b;

use crate::fold::{every_fold_on, tc_folds};
use crate::host::{Chunk, Host, SUM, TC_TAKEN, XDP_DROP, XDP_PASS};
use crate::kernel::{Hook, Kernel};
use crate::namespace::in_namespace;
use crate::star::data;

/// More than the usual MTU has room for, and no more than a page, which is all that a test run of TC takes. Tests in
/// namespaces have whole chunks.
const OF_A_PAGE: usize = 3016;
const WHOLE: usize = b::FB_JUMBO_BYTES as usize;

#[test]
fn tc_folds_long_chunks() {
    tc_folds(Kernel::jumbo(), &[8, 1408, OF_A_PAGE]);
}

#[test]
fn xdp_folds_long_chunks() {
    in_namespace(|| {
        every_fold_on(Kernel::jumbo(), &[8, 1416, WHOLE], |host, chunk, inputs| {
            // Its own is there already, as if egress had taken it.
            host.post(chunk, &inputs[0]);
            host.change_cell(chunk.seq, |cell| (cell.arrived, cell.fanned_out) = (1, 0));
            for (member, verdict) in [(1, XDP_DROP), (3, XDP_DROP), (2, XDP_PASS)] {
                let packet = host.contribution(member, chunk, &inputs[usize::from(member)]);
                assert_eq!(host.xdp(&packet).code, verdict);
            }
        });
    });
}

#[test]
fn long_chunks_are_deposited_alone_and_many_at_once() {
    in_namespace(|| {
        let host = Host::on(Kernel::jumbo(), 4, 1);
        let broadcast = |seq, length| {
            let chunk = Chunk { seq, op: 0, element: 0, target: 2, flags: 0, consumed: 0 };
            host.broadcast(2, chunk, &vec![seq as u8; length])
        };
        assert_eq!(host.xdp(&broadcast(1, WHOLE)).code, XDP_DROP);
        assert_eq!(host.ingress(&broadcast(2, OF_A_PAGE)).code, TC_TAKEN);
        let both = broadcast(3, 1480).and(&[broadcast(4, 1480)]);
        assert_eq!(host.segmented(Hook::Ingress, &both, 2, 1480).code, TC_TAKEN);
        for (seq, length) in [(1, WHOLE), (2, OF_A_PAGE), (3, 1480), (4, 1480)] {
            let cell = host.cell(seq);
            assert_eq!((cell.ready, data(&cell, length)), (seq, vec![seq as u8; length]));
        }
        assert_eq!(host.counted(), "deposited 4, frames_in 4");
    });
}

/// If one member has the usual MTU, all have its chunks. A cell would have room for more, but user space has none.
#[test]
fn no_chunk_is_longer_than_the_members_agreed_on() {
    in_namespace(|| {
        for kernel in [Kernel::jumbo(), Kernel::shared()] {
            let host = Host::on(kernel, 3, 0);
            host.change_group(|group| group.chunk_bytes = 1400);
            let longer = host.contribution(1, SUM, &[0; 1408]);
            let placed = Chunk { op: b::FB_OP_PLACE as u8, ..SUM };
            let wider = host.contribution(1, placed, &[0; 8]).with(|p| p.frame.detail = 1408);
            for packet in [longer, wider] {
                assert_eq!(host.ingress(&packet).code, TC_TAKEN);
                assert_eq!(host.counted(), "drop_malformed 1");
                assert_eq!(host.xdp(&packet).code, XDP_DROP);
                assert_eq!(host.counted(), "drop_malformed 1");
            }
            assert_eq!(host.ingress(&host.contribution(1, SUM, &[0; 1400])).code, TC_TAKEN);
            assert_eq!(host.counted(), "contributions_folded 1, frames_in 1");
            assert_eq!(host.egress(&host.contribution(0, SUM, &[0; 1400])).code, TC_TAKEN);
        }
    });
}
