//! The number types of an export.

use cognate_graph::Bits;
use std::fmt;
use std::str::FromStr;

/// The type of the weights and values of an export; in the Cognate layout also of keys and values
/// between steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    /// Single precision.
    #[default]
    F32,
    /// Half precision where values fit, measured on translations and random batches; the rest is
    /// f32.
    F16,
    /// Weights of linear layers, the rows that they multiply and tables of tokens in bfloat16; sums
    /// and the rest are f32.
    Bf16,
    /// Linear layers in 8-bit integers, activations rounded row by row.
    Int8,
    /// Linear layers in 8-bit integers, activations rounded batch by batch.
    Int8Tensor,
    /// Linear layers in 8-bit integers, weights and activations rounded block by block.
    Int8Block,
    /// As [`Precision::Int8Block`], with weights of 4 bits except those of the output.
    Int4,
}

impl Precision {
    /// Every precision.
    pub const ALL: [Precision; 7] = [
        Precision::F32,
        Precision::F16,
        Precision::Bf16,
        Precision::Int8,
        Precision::Int8Tensor,
        Precision::Int8Block,
        Precision::Int4,
    ];

    /// The name in `cognate.json`.
    pub fn name(self) -> &'static str {
        match self {
            Precision::F32 => "f32",
            Precision::F16 => "f16",
            Precision::Bf16 => "bf16",
            Precision::Int8 => "int8",
            Precision::Int8Tensor => "int8-tensor",
            Precision::Int8Block => "int8-block",
            Precision::Int4 => "int4",
        }
    }

    /// Whether weights are integers.
    pub fn is_quantised(self) -> bool {
        match self {
            Precision::F32 | Precision::F16 | Precision::Bf16 => false,
            Precision::Int8 | Precision::Int8Tensor | Precision::Int8Block | Precision::Int4 => {
                true
            }
        }
    }

    /// The bits of weights that are rounded block by block.
    pub fn block_bits(self) -> Option<Bits> {
        match self {
            Precision::Int8Block => Some(Bits::Eight),
            Precision::Int4 => Some(Bits::Four),
            Precision::F32
            | Precision::F16
            | Precision::Bf16
            | Precision::Int8
            | Precision::Int8Tensor => None,
        }
    }
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Precision {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|precision| precision.name() == name);
        found.ok_or_else(|| {
            format!("expected {}, found {name}", Self::ALL.map(Precision::name).join(", "))
        })
    }
}
