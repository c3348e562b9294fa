//! Reads PyTorch's outputs for a golden model: `testdata/golden/FAMILY/golden.safetensors` in
//! float32 and `golden.float64.safetensors`.
//!
//! `testdata/golden/README.md` lists the tensors and their shapes.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use safetensors::{Dtype, SafeTensors};

/// A tensor stored by another program.
#[derive(Debug, Clone, PartialEq)]
pub struct Array<T> {
    /// The sizes of the axes; their product is the number of values.
    pub shape: Vec<usize>,
    /// The values in row-major order.
    pub data: Vec<T>,
}

/// The named tensors of one golden model.
#[derive(Debug, Clone)]
pub struct Golden {
    family: String,
    floats: BTreeMap<String, Array<f32>>,
    doubles: BTreeMap<String, Array<f64>>,
    ids: BTreeMap<String, Array<i64>>,
}

impl Golden {
    /// Reads the tensors of `family`, such as `marian`.
    ///
    /// # Panics
    /// If a file is missing or unreadable, or contains a type other than f32, f64 and i64.
    ///
    /// ```
    /// let golden = cognate_testing::Golden::open("marian");
    /// assert_eq!(golden.ids("input_ids").shape, [3, 11]);
    /// assert_eq!(golden.floats("logits").shape, [3, 7, 120]);
    /// ```
    pub fn open(family: &str) -> Golden {
        Self::read(
            family,
            &["golden.safetensors", "golden.float64.safetensors"]
                .map(|file| crate::golden(family).join(file)),
        )
    }

    /// Reads the tensors of a model in `testdata/research`, such as `rotary`.
    ///
    /// # Panics
    /// As [`Golden::open`].
    pub fn research(case: &str) -> Golden {
        Self::read(case, &[crate::testdata("research").join(case).join("answers.safetensors")])
    }

    /// Reads the answers for a model of `testdata/encoders`, such as `bert`.
    ///
    /// # Panics
    /// As [`Golden::open`].
    pub fn encoder(case: &str) -> Golden {
        Self::read(case, &[crate::testdata("encoders").join(case).join("answers.safetensors")])
    }

    /// Reads the answers for a model of `testdata/decoders`, such as `gpt2`.
    ///
    /// # Panics
    /// As [`Golden::open`].
    pub fn decoder(case: &str) -> Golden {
        Self::read(case, &[crate::testdata("decoders").join(case).join("answers.safetensors")])
    }

    fn read(name: &str, files: &[PathBuf]) -> Golden {
        let (floats, doubles, ids) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let mut golden = Golden { family: name.to_owned(), floats, doubles, ids };
        for path in files {
            let bytes =
                fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            let tensors = SafeTensors::deserialize(&bytes)
                .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            for (name, view) in tensors.tensors() {
                let (shape, data) = (view.shape().to_vec(), view.data());
                match view.dtype() {
                    Dtype::F32 => drop(
                        golden
                            .floats
                            .insert(name, Array { shape, data: values(data, f32::from_le_bytes) }),
                    ),
                    Dtype::F64 => drop(
                        golden
                            .doubles
                            .insert(name, Array { shape, data: values(data, f64::from_le_bytes) }),
                    ),
                    Dtype::I64 => drop(
                        golden
                            .ids
                            .insert(name, Array { shape, data: values(data, i64::from_le_bytes) }),
                    ),
                    other => panic!(
                        "{}: {name}: expected F32, F64 or I64, found {other:?}",
                        path.display()
                    ),
                }
            }
        }
        golden
    }

    /// The f32 tensor `name`: hidden states, logits, attentions, scores.
    ///
    /// # Panics
    /// If it does not exist.
    pub fn floats(&self, name: &str) -> &Array<f32> {
        self.find(&self.floats, "f32", name)
    }

    /// The f64 tensor `name`, computed by PyTorch in float64: hidden states, logits, attentions.
    ///
    /// # Panics
    /// If it does not exist.
    pub fn doubles(&self, name: &str) -> &Array<f64> {
        self.find(&self.doubles, "f64", name)
    }

    /// The i64 tensor `name`: token ids and masks.
    ///
    /// # Panics
    /// If it does not exist.
    pub fn ids(&self, name: &str) -> &Array<i64> {
        self.find(&self.ids, "i64", name)
    }

    /// The f32 tensor `name`, if there is one.
    pub fn find_floats(&self, name: &str) -> Option<&Array<f32>> {
        self.floats.get(name)
    }

    /// The i64 tensor `name`, if there is one.
    pub fn find_ids(&self, name: &str) -> Option<&Array<i64>> {
        self.ids.get(name)
    }

    fn find<'a, T>(
        &self,
        tensors: &'a BTreeMap<String, Array<T>>,
        kind: &str,
        name: &str,
    ) -> &'a Array<T> {
        tensors.get(name).unwrap_or_else(|| {
            let known: Vec<_> = tensors.keys().collect();
            panic!("golden/{}: expected an {kind} tensor {name}, found {known:?}", self.family)
        })
    }
}

/// Little-endian values of `N` bytes each.
fn values<T, const N: usize>(bytes: &[u8], parse: fn([u8; N]) -> T) -> Vec<T> {
    let (chunks, rest) = bytes.as_chunks::<N>();
    assert!(rest.is_empty(), "safetensors checks that lengths fit the type");
    chunks.iter().map(|chunk| parse(*chunk)).collect()
}
