//! MPI programs that know nothing of foldback, under all MPIs, in labs of several hosts. They check
//! their own answers, and the statistics must show that the kernel did the work.
//!
//! Needs root, and Debian's Open MPI and MPICH. Anything missing is a failure, except MPIs that `make
//! setup-mpis` installs: their tests say that they are skipped. The long tests are ignored unless asked
//! for (`make test-long`).

/// Tests of a function, one with each MPI. If that is not installed, its test says that it is skipped.
macro_rules! on_each_mpi {
    ($function:ident: $($name:ident: $mpi:ident;)*) => {
        $(
            #[test]
            fn $name() {
                let mpi = crate::harness::Mpi::$mpi;
                if crate::families::skipped(mpi) {
                    return;
                }
                let _turn = crate::harness::turn();
                $function(mpi);
            }
        )*
    };
}

#[path = "mpi/actor.rs"]
mod actor;
#[path = "mpi/agents.rs"]
mod agents;
#[path = "mpi/conformance.rs"]
mod conformance;
#[path = "mpi/deaths.rs"]
mod deaths;
#[path = "common/enemy.rs"]
mod enemy;
#[path = "mpi/exchange.rs"]
mod exchange;
#[path = "mpi/families.rs"]
mod families;
#[path = "mpi/faults.rs"]
mod faults;
#[path = "mpi/forgers.rs"]
mod forgers;
#[path = "mpi/forms.rs"]
mod forms;
#[path = "mpi/harness.rs"]
mod harness;
#[path = "mpi/keys.rs"]
mod keys;
#[path = "mpi/limits.rs"]
mod limits;
#[path = "mpi/meeting.rs"]
mod meeting;
#[path = "mpi/multicast.rs"]
mod multicast;
#[path = "mpi/neighbors.rs"]
mod neighbors;
#[path = "mpi/programs.rs"]
mod programs;
#[path = "mpi/quantized.rs"]
mod quantized;
#[path = "common/random.rs"]
mod random;
#[path = "mpi/router.rs"]
mod router;
#[path = "mpi/served.rs"]
mod served;
#[path = "mpi/settings.rs"]
mod settings;
#[path = "mpi/soak.rs"]
mod soak;
#[path = "mpi/sockets.rs"]
mod sockets;
#[path = "mpi/spies.rs"]
mod spies;
