//! What sums may be quantized, and how (`FOLDBACK_QUANTIZE`).

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::leaf::quantize::Width;

/// Numbers of a block, unless said otherwise: an exponent of two bytes is little beside them.
const BLOCK: usize = 256;
const MOST_BLOCK: usize = 1 << 20;
/// Shortest messages that are quantized, in bytes, unless said otherwise: below, dot products and the like
/// are as fast by the exact way.
const MIN: usize = 64 << 10;

/// How sums of floating point are quantized.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quantize {
    /// What numbers are sent as.
    pub width: Width,
    /// Numbers that have an exponent in common.
    pub block: usize,
    /// Bytes of the shortest message that is quantized.
    pub min: usize,
}

impl FromStr for Quantize {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut words = text.split(',');
        let width = match words.next() {
            Some("fixed32") => Width::Int32,
            Some("int16") => Width::Int16,
            Some("int8") => Width::Int8,
            _ => return Err(()),
        };
        let mut quantize = Self { width, block: BLOCK, min: MIN };
        for word in words {
            let (name, value) = word.split_once('=').ok_or(())?;
            let value = value.parse().map_err(drop)?;
            match name {
                "block" if (1..=MOST_BLOCK).contains(&value) => quantize.block = value,
                "min" => quantize.min = value,
                _ => return Err(()),
            }
        }
        Ok(quantize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_and_what_else_is_said() {
        let of = |text: &str| text.parse::<Quantize>();
        assert_eq!(of("int8").map(|quantize| quantize.width), Ok(Width::Int8));
        assert_eq!(of("int16"), Ok(Quantize { width: Width::Int16, block: BLOCK, min: MIN }));
        let all = Quantize { width: Width::Int32, block: 32, min: 0 };
        assert_eq!(of("fixed32,block=32,min=0"), Ok(all));
        for wrong in
            ["", "int4", "int16,block", "int16,block=0", "int16,block=x", "int16,size=4", "int16,"]
        {
            assert_eq!(of(wrong), Err(()), "{wrong}");
        }
    }
}
