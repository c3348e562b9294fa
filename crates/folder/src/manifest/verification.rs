//! The report of a verification.

use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;

/// The report of a verification, stored in `cognate.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verification {
    /// The reference of the comparison.
    pub reference: String,
    /// The bound on the relative L2 error.
    pub tolerance: f64,
    /// The seed of the random batches.
    pub seed: u64,
    /// The number of batches of the encoder and the decoder.
    pub batches: usize,
    /// The files of the export with their hashes; empty without recorded hashes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<FileReport>,
    /// The available runtimes.
    pub runtimes: Vec<RuntimeReport>,
}

/// A graph or a weights file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileReport {
    /// Its name in the folder.
    pub file: String,
    /// The BLAKE3 hash at the export; `None` at the first verification of an export in place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exported: Option<String>,
    /// The BLAKE3 hash of the file, or its size if it differs.
    pub found: String,
}

impl FileReport {
    /// Whether the file is unchanged.
    pub fn passed(&self) -> bool {
        self.exported.as_ref().is_none_or(|exported| *exported == self.found)
    }
}

/// One runtime.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RuntimeReport {
    /// The engine with version and provider.
    pub engine: String,
    /// The largest errors of each output over all layers.
    pub outputs: Vec<OutputReport>,
    /// Decoded sentences, by method.
    pub decoding: Vec<DecodingReport>,
    /// Steps of greedy search in precisions other than f32; sentences are then reported without a
    /// bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steps: Option<StepsReport>,
    /// Vectors of an encoder alone, or of one that reads audio, in 8 or 4 bits; the errors of its
    /// outputs are then reported without a bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vectors: Option<VectorsReport>,
}

/// Cosines with the reference's vectors: of texts, the means of their states, or of the states of
/// audio.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct VectorsReport {
    /// The number of vectors.
    #[serde(alias = "texts")]
    pub vectors: usize,
    /// The mean of their cosines.
    #[serde(deserialize_with = "number_or_none")]
    pub mean_cosine: f64,
    /// The bound on it.
    pub wanted: f64,
}

impl VectorsReport {
    /// Whether the mean is within the bound; never if it is not a number.
    pub fn passed(self) -> bool {
        self.mean_cosine >= self.wanted
    }
}

/// Steps of greedy search along the reference's tokens: a difference does not affect later steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepsReport {
    /// The number of the reference's tokens, end tokens included.
    pub steps: usize,
    /// The number of equal tokens.
    pub equal: usize,
    /// The required number of equal tokens.
    #[serde(default)]
    pub wanted: usize,
}

impl StepsReport {
    /// Whether enough are equal.
    pub fn passed(self) -> bool {
        self.equal >= self.wanted
    }
}

/// One kind of output.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OutputReport {
    /// `encoder` or `decoder`.
    pub graph: String,
    /// The output's name, with `{l}` for the layer.
    pub output: String,
    /// The largest absolute error over all batches and layers.
    #[serde(deserialize_with = "number_or_none")]
    pub max_absolute_error: f64,
    /// The relative L2 error over all batches together, the largest of all layers.
    #[serde(deserialize_with = "number_or_none")]
    pub relative_l2_error: f64,
}

/// The sentences that one method decoded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DecodingReport {
    /// `greedy`, or `beam N`.
    pub method: String,
    /// The number of sentences.
    pub sentences: usize,
    /// The number of sentences with the reference's tokens.
    pub equal: usize,
    /// The number of sentences whose first difference is a tie of the reference, within 1e-5 of its
    /// logits; in beam search, of sentences with a score within 1e-5 of the reference's.
    pub ties: usize,
}

/// JSON has no NaN and no infinity: they are written as `null` and read as NaN, which exceeds every
/// bound.
fn number_or_none<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(f64::NAN))
}

impl Verification {
    /// Whether all files are unchanged and all runtimes are within the bounds.
    pub fn passed(&self) -> bool {
        self.files.iter().all(FileReport::passed)
            && self.runtimes.iter().all(|runtime| runtime.passed(self.tolerance))
    }

    /// The report on changed files, which no runtime is run with.
    pub fn of_damage(files: Vec<FileReport>, tolerance: f64, seed: u64) -> Self {
        Self { files, ..Self::new("files that were exported", tolerance, seed) }
    }

    fn write_files(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.files.is_empty() {
            return writeln!(f, "files: not checked, because the export has no hashes");
        }
        let known = || self.files.iter().filter(|file| file.exported.is_some());
        writeln!(
            f,
            "files: {} of {} unchanged by BLAKE3",
            known().filter(|file| file.passed()).count(),
            known().count()
        )?;
        for FileReport { file, exported, found } in &self.files {
            match exported {
                None => writeln!(f, "  {file}: {found}, first verification")?,
                Some(exported) if exported == found => {}
                Some(exported) => {
                    writeln!(f, "  {file}: exported {exported}, found {found}  FAILED")?
                }
            }
        }
        Ok(())
    }

    /// A report without results.
    pub fn new(reference: &str, tolerance: f64, seed: u64) -> Self {
        Self {
            reference: reference.into(),
            tolerance,
            seed,
            batches: 0,
            files: Vec::new(),
            runtimes: Vec::new(),
        }
    }
}

impl RuntimeReport {
    /// Whether all errors (NaN never is), and all sentences or the steps, are within the bounds.
    pub fn passed(&self, tolerance: f64) -> bool {
        let close = self
            .outputs
            .iter()
            .all(|output| !self.bounds(output) || output.relative_l2_error <= tolerance);
        let equal = || {
            self.decoding
                .iter()
                .all(|decoding| decoding.equal + decoding.ties == decoding.sentences)
        };
        close
            && self.vectors.is_none_or(VectorsReport::passed)
            && self.steps.map_or_else(equal, StepsReport::passed)
    }

    /// Whether the error of an output is bound, and not that of the vectors in its place.
    fn bounds(&self, output: &OutputReport) -> bool {
        self.vectors.is_none() || output.graph == "decoder"
    }
}

impl fmt::Display for Verification {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "compared with the {}, {} batches with seed {}; bound {:.0e}",
            self.reference, self.batches, self.seed, self.tolerance
        )?;
        self.write_files(f)?;
        for runtime in &self.runtimes {
            writeln!(
                f,
                "{}: {}",
                runtime.engine,
                if runtime.passed(self.tolerance) { "passed" } else { "FAILED" }
            )?;
            for output in &runtime.outputs {
                let mark = if !runtime.bounds(output) || output.relative_l2_error <= self.tolerance
                {
                    ""
                } else {
                    "  FAILED"
                };
                let name = format!("{}: {}", output.graph, output.output);
                let (absolute, relative) = (output.max_absolute_error, output.relative_l2_error);
                writeln!(f, "  {name:<34} max abs {absolute:.2e}  rel L2 {relative:.2e}{mark}")?;
            }
            for decoding in &runtime.decoding {
                let DecodingReport { method, sentences, equal, ties } = decoding;
                let mark = if runtime.steps.is_some() || equal + ties == *sentences {
                    ""
                } else {
                    "  FAILED"
                };
                writeln!(
                    f,
                    "  {method:<34} {equal} of {sentences} sentences equal, {ties} ties{mark}"
                )?;
            }
            if let Some(steps) = runtime.steps {
                let mark = if steps.passed() { "" } else { "  FAILED" };
                writeln!(
                    f,
                    "  {:<34} {} of {} equal{mark}",
                    "greedy steps", steps.equal, steps.steps
                )?;
            }
            if let Some(vectors) = runtime.vectors {
                let VectorsReport { vectors: count, mean_cosine, wanted } = vectors;
                let mark = if vectors.passed() { "" } else { "  FAILED" };
                writeln!(
                    f,
                    "  {:<34} {mean_cosine:.6} in the mean of {count} vectors, bound {wanted}{mark}",
                    "cosines"
                )?;
            }
        }
        Ok(())
    }
}
