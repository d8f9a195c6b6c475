//! The kernel module foldback_simd (`kmod/foldback_simd`), whose kfunc the programs call if this host has it.

use std::fmt;
use std::fs;

use serde::{Deserialize, Serialize};

/// There while the module is loaded.
const AVX2: &str = "/sys/module/foldback_simd/parameters/avx2";

/// The instructions by which the programs fold long chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fold {
    /// BPF's own, on words of 64 bits.
    Swar,
    /// Vectors of 256 bits, in the module.
    Avx2,
}

impl fmt::Display for Fold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Swar => "SWAR in BPF",
            Self::Avx2 => "AVX2 by foldback_simd",
        })
    }
}

/// The module on this host, as of now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Module {
    /// Not loaded.
    Missing,
    /// Loaded, but on a CPU that has no AVX2.
    WithoutAvx2,
    /// Loaded, and of use.
    Useful,
}

impl Module {
    /// Looks for it.
    pub fn find() -> Self {
        match fs::read_to_string(AVX2) {
            Ok(text) if text.trim() == "Y" => Self::Useful,
            Ok(_) => Self::WithoutAvx2,
            Err(_) => Self::Missing,
        }
    }

    /// The fold of programs that are loaded now.
    pub fn fold(self) -> Fold {
        if self == Self::Useful { Fold::Avx2 } else { Fold::Swar }
    }
}
