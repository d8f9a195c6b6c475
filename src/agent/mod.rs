//! The agent: loads and attaches the BPF programs of a host, owns their maps, and admits groups.
