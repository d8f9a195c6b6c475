//! What loading the programs costs. A job without `foldback agent` pays it at every start, on every host.

use crate::kernel::{Hook, Kernel};

/// A quarter of what the kernel takes on. 120,000 take a tenth of a second; see "Lanes instead of branches" in
/// docs/architecture.md.
const MOST: u32 = 250_000;

#[test]
fn programs_are_verified_in_few_steps() {
    for hook in [Hook::Ingress, Hook::Egress, Hook::Xdp] {
        let verified = Kernel::shared().verified(hook);
        assert!(verified > 1000, "{hook:?}: {verified} instructions, which cannot be all");
        assert!(verified < MOST, "{hook:?}: {verified} instructions");
    }
}
