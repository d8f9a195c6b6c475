//! Everything at once, drawn by a seed: any faults, at any rate, on groups of any size and shape.
//!
//! Checked: as in each of the other runs.

use crate::adversary::Fault;
use crate::random::Rng;
use crate::{CALM, drawn, ranks};

/// Any faults; half of them do not occur.
fn faults(rng: &mut Rng, hosts: u64) -> Fault {
    let mut rate = |rates: [u64; 3]| {
        let which = rng.below(6) as usize;
        rates.get(which).copied().unwrap_or(0)
    };
    let fault = Fault {
        loss: rate([1, 10, 100]),
        duplication: rate([1, 10, 100]),
        delay: rate([10, 50, 100]),
        most_delay: rate([10, 3_000, 2_000_000]),
        flips: rate([10, 20, 100]),
        busy: rate([1, 20, 100]),
        moves: rate([1, 5, 20]),
        crashes: rate([1, 1, 3]),
        ..CALM
    };
    let dead = if rng.below(4) == 0 { rng.below(1 << hosts) } else { 0 };
    Fault { dead, ..fault }
}

/// Steps of runs by the seeds from `first` on, until there are `most`.
fn steps(first: u64, most: u64) -> u64 {
    let mut steps = 0;
    for seed in first.. {
        if steps >= most {
            break;
        }
        let mut rng = Rng(!seed);
        if seed.is_multiple_of(2) {
            let setting = drawn(seed / 2);
            let fault = faults(&mut rng, setting.members.into());
            steps += crate::run(&crate::Setting { seed, fault, ..setting }).steps;
        } else {
            let mut setting = ranks::drawn(seed / 2);
            (setting.seed, setting.fault) = (seed, faults(&mut rng, setting.hosts));
            steps += ranks::run(&setting);
        }
        if (seed - first) % 1000 == 999 {
            println!("seed {seed}: {steps} steps");
        }
    }
    steps
}

#[test]
fn two_million_steps_of_anything() {
    assert!(steps(10_000, 2_000_000) >= 2_000_000);
}

/// Minutes: for `make test-long`. Each time with other seeds, which a failure tells.
#[test]
#[ignore = "long: minutes"]
fn a_hundred_million_steps_of_anything() {
    let first = std::time::UNIX_EPOCH.elapsed().expect("later than 1970").as_secs() << 20;
    println!("from seed {first} on");
    assert!(steps(first, 100_000_000) >= 100_000_000);
}
