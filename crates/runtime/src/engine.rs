//! The names of engines and devices.

use crate::{Error, ErrorKind, Result};
use std::fmt;
use std::str::FromStr;

/// An engine, by its name on the command line.
///
/// ```
/// use cognate_runtime::Engine;
/// assert_eq!("tract".parse(), Ok(Engine::Tract));
/// assert_eq!(Engine::default().to_string(), "auto");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Engine {
    /// ONNX Runtime if its library is found, otherwise tract.
    #[default]
    Auto,
    /// The reference evaluator, in single precision.
    Reference,
    /// tract.
    Tract,
    /// ONNX Runtime.
    Ort,
}

impl Engine {
    /// All engines.
    pub const ALL: [Engine; 4] = [Engine::Auto, Engine::Reference, Engine::Tract, Engine::Ort];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Engine::Auto => "auto",
            Engine::Reference => "reference",
            Engine::Tract => "tract",
            Engine::Ort => "ort",
        }
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Engine {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let found = Engine::ALL.into_iter().find(|engine| engine.as_str() == name);
        found.ok_or_else(|| {
            unavailable(
                "engine",
                format!("expected {}, found {name}", Engine::ALL.map(Engine::as_str).join(", ")),
            )
        })
    }
}

/// The device of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Device {
    /// The CPU.
    #[default]
    Cpu,
    /// The NVIDIA GPU with this number, by ONNX Runtime's CUDA execution provider; loading fails if
    /// there is none.
    Cuda(u16),
}

impl Device {
    /// The first GPU.
    pub const CUDA: Device = Device::Cuda(0);

    /// Whether it is a GPU.
    pub fn is_gpu(self) -> bool {
        match self {
            Device::Cpu => false,
            Device::Cuda(_) => true,
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Device::Cpu => f.pad("cpu"),
            Device::Cuda(0) => f.pad("cuda"),
            Device::Cuda(number) => f.pad(&format!("cuda:{number}")),
        }
    }
}

impl FromStr for Device {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let number = || name.strip_prefix("cuda:")?.parse().ok();
        match name {
            "cpu" => Ok(Device::Cpu),
            "cuda" => Ok(Device::CUDA),
            _ => number().map(Device::Cuda).ok_or_else(|| {
                let found = if name.is_empty() { "nothing" } else { name };
                unavailable("device", format!("expected cpu, cuda or cuda:NUMBER, found {found}"))
            }),
        }
    }
}

/// The devices of a model, which has a copy of its weights on each: the CPU, or one or more GPUs.
///
/// ```
/// use cognate_runtime::{Device, Devices};
/// let devices: Devices = "cuda:0,cuda:1".parse()?;
/// assert_eq!(devices.all(), [Device::Cuda(0), Device::Cuda(1)]);
/// # Ok::<(), cognate_runtime::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Devices(Vec<Device>);

impl Devices {
    /// The devices; at least one.
    pub fn all(&self) -> &[Device] {
        &self.0
    }

    /// The first device.
    pub fn first(&self) -> Device {
        self.0[0]
    }

    /// Whether they are GPUs.
    pub fn are_gpus(&self) -> bool {
        self.first().is_gpu()
    }
}

impl Default for Devices {
    fn default() -> Self {
        Device::Cpu.into()
    }
}

impl From<Device> for Devices {
    fn from(device: Device) -> Self {
        Self(vec![device])
    }
}

impl fmt::Display for Devices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0.iter().map(Device::to_string).collect::<Vec<_>>().join(","))
    }
}

impl FromStr for Devices {
    type Err = Error;

    fn from_str(names: &str) -> Result<Self> {
        let devices = names.split(',').map(str::parse).collect::<Result<Vec<Device>>>()?;
        if devices.len() > 1 && devices.contains(&Device::Cpu) {
            let message = format!("expected cpu alone, or GPUs, found {names}");
            return Err(unavailable("device", message));
        }
        Ok(Self(devices))
    }
}

pub(crate) fn unavailable(place: &str, message: String) -> Error {
    Error::new(ErrorKind::Unavailable, place, message)
}
