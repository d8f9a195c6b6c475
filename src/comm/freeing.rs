//! Communicators that are being freed, by this thread.
//!
//! MPI frees a communicator after it has called the delete callbacks of its attributes, MPI-4.1 section 7.7.2. Foldback
//! hears of the end by one of them, and forgets the communicator. A callback of the program's may come later, and use
//! the communicator. It must not be taken for a new one then: MPI tells of no second end, and the next communicator
//! with the same handle would be taken for it, on some ranks.

use std::cell::RefCell;
use std::ptr;

use crate::mpi::pmpi::Handle;

thread_local! {
    static FREEING: RefCell<Vec<Freeing>> = const { RefCell::new(Vec::new()) };
}

/// A communicator, and the place on the stack from which MPI frees it.
struct Freeing {
    comm: Handle,
    at: usize,
}

/// Frees `comm` by `free`. Has a frame of its own, by which the place is known.
#[inline(never)]
pub fn freeing<R>(comm: Handle, free: impl FnOnce() -> R) -> R {
    let mark = 0_u8;
    let at = ptr::from_ref(&mark) as usize;
    let before = FREEING.with_borrow_mut(|all| {
        prune(all, at);
        all.push(Freeing { comm, at });
        all.len() - 1
    });
    let result = free();
    FREEING.with_borrow_mut(|all| all.truncate(before));
    result
}

/// Whether this thread is freeing `comm`, further up the stack.
#[inline(never)]
pub(super) fn is_freed(comm: Handle) -> bool {
    let mark = 0_u8;
    FREEING.with_borrow_mut(|all| {
        prune(all, ptr::from_ref(&mark) as usize);
        all.iter().any(|one| one.comm == comm)
    })
}

/// Forgets what was left behind: a handler of the program's may have jumped out of MPI.
fn prune(all: &mut Vec<Freeing>, at: usize) {
    all.retain(|one| at < one.at);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_communicator_is_freed_until_mpi_returns() {
        let inner = || freeing(2, || (is_freed(1), is_freed(2)));
        assert_eq!(
            freeing(1, || (is_freed(1), is_freed(2), inner(), is_freed(2))),
            (true, false, (true, true), false)
        );
        assert!(!is_freed(1));
    }

    /// By a panic in place of a jump, which leaves the same behind.
    #[test]
    fn what_a_jump_left_behind_is_forgotten() {
        #[inline(never)]
        fn deeper() {
            // Far below the frames of the test.
            std::hint::black_box([0_u8; 1 << 14]);
            freeing(1, || std::panic::resume_unwind(Box::new(())));
        }
        assert!(std::panic::catch_unwind(deeper).is_err());
        assert!(!is_freed(1));
    }
}
