//! The cost of loading the programs. A job without `foldback agent` pays it at every start, on every host.

use crate::kernel::{Hook, Kernel};

/// A quarter of what the kernel takes on. 120,000 take a tenth of a second; see
/// docs/decisions/37-lanes-in-bpf.md. The programs for jumbo frames have six times as many blocks to go through:
/// 696,639 instructions on Linux 6.1.
const MOST: u32 = 250_000;
const MOST_JUMBO: u32 = 750_000;

#[test]
fn programs_are_verified_in_few_steps() {
    for hook in [Hook::Ingress, Hook::Egress, Hook::Xdp] {
        for (kernel, most) in [(Kernel::shared(), MOST), (Kernel::jumbo(), MOST_JUMBO)] {
            let verified = kernel.verified(hook);
            println!("{hook:?}: {verified} instructions");
            assert!(verified > 1000, "{hook:?}: {verified} instructions, which cannot be all");
            assert!(verified < most, "{hook:?}: {verified} instructions");
        }
    }
}
