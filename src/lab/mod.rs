//! The lab: a small cluster on one machine.
