//! The processor of the measurements, which names its part of the committed page.

use fs_err as fs;
use std::env::consts::{ARCH, OS};
use std::thread::available_parallelism;

/// Instructions that determine the speed: their names in Linux and by the vendor.
pub const INSTRUCTIONS: [(&str, &str); 7] = [
    ("avx2", "AVX2"),
    ("avx512f", "AVX-512"),
    ("avx_vnni", "AVX-VNNI"),
    ("avx512_vnni", "AVX-512 VNNI"),
    ("avx512_bf16", "AVX-512 BF16"),
    ("amx_int8", "AMX INT8"),
    ("amx_bf16", "AMX BF16"),
];

/// A processor and the number of its cores that programs may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// Such as `AMD EPYC, family 25, model 17, 2 cores`.
    pub title: String,
    /// Such as `AVX2, AVX-512`; empty if it is unknown.
    pub instructions: String,
}

impl Machine {
    /// The machine of this process.
    pub fn here() -> Machine {
        let cores = available_parallelism().map_or(1, |cores| cores.get());
        Machine::of(&fs::read_to_string("/proc/cpuinfo").unwrap_or_default(), cores)
    }

    /// The first processor of `/proc/cpuinfo`; otherwise the compiler's target.
    pub fn of(cpuinfo: &str, cores: usize) -> Machine {
        let field = |name: &str| {
            let mut fields = cpuinfo.lines().filter_map(|line| line.split_once(':'));
            Some(fields.find(|(key, _)| key.trim() == name)?.1.trim().to_owned())
        };
        let name = field("model name").unwrap_or_else(|| format!("{ARCH} on {OS}"));
        // Cloud machines hide the model number of a processor; its family and model identify the
        // generation.
        let generation = ["cpu family", "model"].map(field);
        let generation = match generation {
            [Some(family), Some(model)] => format!(", family {family}, model {model}"),
            _ => String::new(),
        };
        let cores = if cores == 1 { "1 core".to_owned() } else { format!("{cores} cores") };
        let flags = field("flags").unwrap_or_default();
        let has = |flag: &str| flags.split_whitespace().any(|here| here == flag);
        let instructions: Vec<&str> =
            INSTRUCTIONS.iter().filter(|(flag, _)| has(flag)).map(|(_, name)| *name).collect();
        Machine {
            title: format!("{name}{generation}, {cores}"),
            instructions: instructions.join(", "),
        }
    }

    /// The title in letters, digits and dashes, for the name of a file.
    pub fn slug(&self) -> String {
        let words =
            self.title.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
        words.collect::<Vec<_>>().join("-").to_ascii_lowercase()
    }

    /// A sentence about the instructions, or an empty text.
    pub fn sentence(&self) -> String {
        if self.instructions.is_empty() {
            String::new()
        } else {
            format!("The processor has {}.\n", self.instructions)
        }
    }
}
