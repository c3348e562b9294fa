//! Lazy recipes for weights: nothing is read or converted before it is needed, and then piece by
//! piece.

use super::Element;
use crate::{Error, ErrorKind};
use std::convert::Infallible;
use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// Bytes that are stored elsewhere, such as in a mapped file.
pub trait Storage: fmt::Debug + Send + Sync {
    /// All bytes.
    fn bytes(&self) -> &[u8];

    /// The file that contains exactly these bytes, if there is one.
    fn file(&self) -> Option<&Path> {
        None
    }

    /// Whether the file has changed since it was opened, as far as the system reports.
    fn has_changed(&self) -> bool {
        false
    }
}

/// Values computed by a formula, such as sinusoids or a seeded initialisation.
pub trait Generator: fmt::Debug + Send + Sync {
    /// Fills `values` with the elements from position `first` on, in row-major order.
    fn fill(&self, first: usize, values: &mut [f32]);
}

/// The definition of one weight, row-major. Cheap to clone.
///
/// Its source is stored as an [`Element`] or computed. Its values have the type
/// [`Recipe::element`], to which they are rounded if the source is more precise.
#[derive(Clone, Debug)]
pub struct Recipe {
    shape: Vec<usize>,
    source: Source,
    element: Element,
}

#[derive(Clone, Debug)]
enum Source {
    Stored {
        storage: Arc<dyn Storage>,
        range: Range<usize>,
        element: Element,
    },
    Generated(Arc<dyn Generator>),
    /// Concatenated along the first axis.
    Joined(Arc<[Recipe]>),
    /// The columns of a matrix from `first` on, as rows.
    Columns {
        matrix: Arc<Recipe>,
        first: usize,
    },
}

/// The location of a stored weight in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place<'r> {
    /// The file.
    pub file: &'r Path,
    /// Its range of bytes.
    pub range: Range<usize>,
    /// The element type for readers.
    pub element: Element,
}

/// Bytes in memory.
struct Held(Vec<u8>);

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

impl Storage for Held {
    fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Number of elements that are converted or generated at once: 256 KiB of f32.
const CHUNK: usize = 1 << 16;

impl Recipe {
    /// The bytes `range` of `storage`, as f32 of the given shape.
    ///
    /// # Errors
    /// If the range exceeds the storage, or its length does not match the shape.
    pub fn stored(
        storage: Arc<dyn Storage>,
        range: Range<usize>,
        shape: &[usize],
    ) -> Result<Self, Error> {
        Self::stored_as(Element::F32, storage, range, shape)
    }

    /// The bytes `range` of `storage`, stored as `element`, of the given shape; read as f32 unless
    /// [`Recipe::to`] selects another type.
    ///
    /// # Errors
    /// If the range exceeds the storage, or its length does not match the shape.
    pub fn stored_as(
        element: Element,
        storage: Arc<dyn Storage>,
        range: Range<usize>,
        shape: &[usize],
    ) -> Result<Self, Error> {
        let wrong = |message| Error::new(ErrorKind::Weights, "stored weight", message);
        let wanted = shape.iter().try_fold(element.size(), |len, &size| len.checked_mul(size));
        let wanted = wanted.ok_or_else(|| wrong(format!("shape {shape:?} is too large")))?;
        let held = storage.bytes().get(range.clone()).map(<[u8]>::len);
        if held != Some(wanted) {
            return Err(wrong(format!(
                "shape {shape:?}: expected {wanted} bytes, found the range {range:?} of {}",
                storage.bytes().len()
            )));
        }
        Ok(Self {
            shape: shape.to_vec(),
            source: Source::Stored { storage, range, element },
            element: Element::F32,
        })
    }

    /// The values of `generator` in f32, with the given shape.
    pub fn generated(generator: Arc<dyn Generator>, shape: &[usize]) -> Self {
        Self { shape: shape.to_vec(), source: Source::Generated(generator), element: Element::F32 }
    }

    /// These values in f32, kept in memory, with the given shape.
    ///
    /// # Errors
    /// If their number does not match the shape.
    pub fn held(values: &[f32], shape: &[usize]) -> Result<Self, Error> {
        let mut bytes = Vec::with_capacity(size_of_val(values));
        Element::F32.encode(values, &mut bytes);
        let range = 0..bytes.len();
        Self::stored(Arc::new(Held(bytes)), range, shape)
    }

    /// The same weight, of which a generated source is computed now and kept in memory: faster if
    /// it is read several times.
    #[must_use]
    pub fn evaluated(&self) -> Self {
        let Source::Generated(_) = self.source else { return self.clone() };
        let source = self.to(Element::F32);
        let mut bytes = Vec::with_capacity(self.elements() * Element::F32.size());
        let Ok(()) = source.stream(|piece| {
            bytes.extend_from_slice(piece);
            Ok::<_, Infallible>(())
        });
        let source = Source::Stored {
            range: 0..bytes.len(),
            storage: Arc::new(Held(bytes)),
            element: Element::F32,
        };
        Self { source, ..self.clone() }
    }

    /// Weights concatenated along their first axis, with the type of the first one.
    ///
    /// # Errors
    /// If there are none, or their other axes or types differ.
    pub fn joined(parts: &[Recipe]) -> Result<Self, Error> {
        let wrong = |message| Error::new(ErrorKind::Weights, "joined weight", message);
        let Some(Recipe { shape, element, .. }) = parts.first() else {
            return Err(wrong("of no parts".into()));
        };
        let fits = |part: &Recipe| {
            part.element == *element && !part.shape.is_empty() && part.shape[1..] == shape[1..]
        };
        if let Some(part) = parts.iter().find(|part| !fits(part)) {
            return Err(wrong(format!(
                "cannot join {element} {shape:?} and {} {:?}",
                part.element, part.shape
            )));
        }
        let mut shape = shape.clone();
        shape[0] = parts.iter().map(|part| part.shape[0]).sum();
        Ok(Self { shape, source: Source::Joined(parts.into()), element: *element })
    }

    /// The columns `range` of `matrix: [rows, width]`, as rows: `[range.len(), rows]`.
    ///
    /// # Errors
    /// If it is not a matrix, or has fewer columns.
    pub fn columns(matrix: &Recipe, range: Range<usize>) -> Result<Self, Error> {
        match matrix.shape[..] {
            [rows, width] if range.start <= range.end && range.end <= width => Ok(Self {
                shape: vec![range.len(), rows],
                element: matrix.element,
                source: Source::Columns { matrix: Arc::new(matrix.clone()), first: range.start },
            }),
            _ => Err(Error::new(
                ErrorKind::Weights,
                "weight",
                format!("has no columns {range:?}: {:?}", matrix.shape),
            )),
        }
    }

    /// The shape.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The number of elements.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// The type of the values.
    pub fn element(&self) -> Element {
        self.element
    }

    /// The number of bytes of [`Recipe::stream`].
    pub fn byte_len(&self) -> u64 {
        self.elements() as u64 * self.element.size() as u64
    }

    /// The same weight with values of type `element`, converted directly from the source.
    ///
    /// Values are rounded to nearest, ties to even; in f16, those beyond 65,504 are infinite.
    #[must_use]
    pub fn to(&self, element: Element) -> Self {
        Self { element, ..self.clone() }
    }

    /// The same values under another shape with the same number of elements.
    ///
    /// # Errors
    /// If the number of elements differs.
    pub fn reshaped(&self, shape: &[usize]) -> Result<Self, Error> {
        if shape.iter().product::<usize>() != self.elements() {
            return Err(Error::new(
                ErrorKind::Weights,
                "weight",
                format!("cannot reshape {:?} to {shape:?}", self.shape),
            ));
        }
        Ok(Self { shape: shape.to_vec(), ..self.clone() })
    }

    /// The file and range of the source; `None` if it is generated or not in a file.
    pub fn place(&self) -> Option<Place<'_>> {
        match &self.source {
            Source::Stored { storage, range, element } => {
                Some(Place { file: storage.file()?, range: range.clone(), element: *element })
            }
            Source::Generated(_) | Source::Joined(_) | Source::Columns { .. } => None,
        }
    }

    /// Whether the source file has changed since it was opened.
    pub fn has_changed(&self) -> bool {
        match &self.source {
            Source::Stored { storage, .. } => storage.has_changed(),
            Source::Generated(_) => false,
            Source::Joined(parts) => parts.iter().any(Recipe::has_changed),
            Source::Columns { matrix, .. } => matrix.has_changed(),
        }
    }

    /// Passes the little-endian bytes to `sink`, piece by piece; bytes stored in the requested type
    /// are borrowed, not copied.
    ///
    /// # Errors
    /// The first error of `sink`.
    pub fn stream<E>(&self, mut sink: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        if let Some(bytes) = self.bytes() {
            return sink(bytes);
        }
        let mut bytes = Vec::with_capacity(CHUNK.min(self.elements()) * self.element.size());
        self.pieces(|values| {
            bytes.clear();
            self.element.encode(values, &mut bytes);
            sink(&bytes)
        })
    }

    /// Fills `values` with the elements from position `first` on, in row-major order.
    ///
    /// # Panics
    /// If the recipe has fewer elements.
    pub fn read(&self, first: usize, values: &mut [f32]) {
        match &self.source {
            Source::Stored { storage, range, element } => {
                let bytes = &storage.bytes()[range.clone()];
                element.decode(
                    &bytes[first * element.size()..(first + values.len()) * element.size()],
                    values,
                );
                if *element != self.element {
                    self.element.round(values);
                }
            }
            Source::Generated(generator) => {
                assert!(
                    first + values.len() <= self.elements(),
                    "a recipe is read within its shape"
                );
                generator.fill(first, values);
                self.element.round(values);
            }
            Source::Joined(parts) => {
                assert!(
                    first + values.len() <= self.elements(),
                    "a recipe is read within its shape"
                );
                let (mut skip, mut rest) = (first, values);
                for part in parts.iter() {
                    let count = part.elements().saturating_sub(skip).min(rest.len());
                    let (here, after) = rest.split_at_mut(count);
                    if count > 0 {
                        part.to(self.element).read(skip, here);
                    }
                    skip = skip.saturating_sub(part.elements());
                    rest = after;
                }
            }
            Source::Columns { matrix, first: column } => {
                read_columns(&matrix.to(self.element), *column, first, values)
            }
        }
    }

    /// The values, converted while they are read.
    pub fn values<T: From<f32>>(&self) -> Vec<T> {
        let mut converted = Vec::with_capacity(self.elements());
        let Ok(()) = self.pieces(|values| {
            converted.extend(values.iter().map(|&value| T::from(value)));
            Ok::<_, Infallible>(())
        });
        converted
    }

    /// The first stored value that is not finite, with its position in row-major order; generated
    /// values are finite.
    pub fn first_non_finite(&self) -> Option<(usize, f32)> {
        match &self.source {
            Source::Stored { storage, range, element } => {
                element.first_non_finite(&storage.bytes()[range.clone()])
            }
            Source::Generated(_) => None,
            Source::Joined(parts) => {
                let mut first = 0;
                parts.iter().find_map(|part| {
                    let found =
                        part.first_non_finite().map(|(place, value)| (first + place, value));
                    first += part.elements();
                    found
                })
            }
            Source::Columns { matrix, .. } => {
                // Without transposition, which is slow.
                matrix.first_non_finite()?;
                let mut first = 0;
                let search = self.pieces(|values| {
                    let found = values
                        .iter()
                        .position(|value| !value.is_finite())
                        .map(|place| (first + place, values[place]));
                    first += values.len();
                    found.map_or(Ok(()), Err)
                });
                search.err()
            }
        }
    }

    /// Whether its source generates exactly the values of `stored`.
    pub(super) fn is_generated_as(&self, stored: &Recipe) -> bool {
        matches!(self.source, Source::Generated(_))
            && (&self.shape, self.element) == (&stored.shape, stored.element)
            && self.distance(stored) == 0.0
    }

    /// Whether both have the same values from the same location.
    pub fn same_source(&self, other: &Recipe) -> bool {
        let is_same = match (&self.source, &other.source) {
            (
                Source::Stored { storage: a, range: x, element: e },
                Source::Stored { storage: b, range: y, element: f },
            ) => Arc::ptr_eq(a, b) && x == y && e == f,
            (Source::Generated(a), Source::Generated(b)) => {
                Arc::ptr_eq(a, b) && self.shape == other.shape
            }
            (Source::Joined(a), Source::Joined(b)) => {
                a.len() == b.len() && a.iter().zip(b.iter()).all(|(a, b)| a.same_source(b))
            }
            (Source::Columns { matrix: a, first: x }, Source::Columns { matrix: b, first: y }) => {
                a.same_source(b) && x == y && self.shape == other.shape
            }
            (
                Source::Stored { .. }
                | Source::Generated(_)
                | Source::Joined(_)
                | Source::Columns { .. },
                _,
            ) => false,
        };
        is_same && self.element == other.element
    }

    /// The largest difference between the values of both, computed piece by piece; NaN if a value
    /// is NaN, unless the bytes are equal. Free for the same location, and fast for equal bytes.
    ///
    /// # Panics
    /// If one has more elements.
    pub fn distance(&self, other: &Recipe) -> f32 {
        assert_eq!(self.elements(), other.elements(), "only weights of one size are compared");
        let same_bytes = || {
            self.element == other.element
                && self.bytes().zip(other.bytes()).is_some_and(|(a, b)| a == b)
        };
        if self.same_source(other) || same_bytes() {
            return 0.0;
        }
        let mut others = vec![0.0; CHUNK.min(other.elements())];
        let (mut first, mut largest, mut is_number) = (0, 0f32, true);
        let Ok(()) = self.pieces(|values| {
            let others = &mut others[..values.len()];
            other.read(first, others);
            first += values.len();
            for (a, b) in values.iter().zip(&*others) {
                let difference = if a == b { 0.0 } else { (a - b).abs() };
                largest = largest.max(difference);
                is_number &= !difference.is_nan();
            }
            Ok::<_, Infallible>(())
        });
        if is_number { largest } else { f32::NAN }
    }

    /// The bytes of the source, if they equal those of [`Recipe::stream`].
    fn bytes(&self) -> Option<&[u8]> {
        match &self.source {
            Source::Stored { storage, range, element } if *element == self.element => {
                Some(&storage.bytes()[range.clone()])
            }
            Source::Stored { .. }
            | Source::Generated(_)
            | Source::Joined(_)
            | Source::Columns { .. } => None,
        }
    }

    /// Passes all values to `sink`, in pieces.
    fn pieces<E>(&self, mut sink: impl FnMut(&[f32]) -> Result<(), E>) -> Result<(), E> {
        let elements = self.elements();
        let mut values = vec![0f32; CHUNK.min(elements)];
        for first in (0..elements).step_by(CHUNK) {
            let values = &mut values[..CHUNK.min(elements - first)];
            self.read(first, values);
            sink(values)?;
        }
        Ok(())
    }
}

/// Fills `values` with the elements from position `first` on of the transposed columns of
/// `matrix: [rows, width]` from `column` on.
fn read_columns(matrix: &Recipe, column: usize, first: usize, values: &mut [f32]) {
    /// Number of rows of the matrix that are written one after the other.
    const BLOCK: usize = 16;
    let (&[rows, width], false) = (matrix.shape(), values.is_empty()) else { return };
    let end = first + values.len();
    // A short piece of each row of the matrix.
    let (from, to) = (first / rows, (end - 1) / rows);
    let n_outputs = to + 1 - from;
    let mut pieces = vec![0f32; BLOCK * n_outputs];
    for row in (0..rows).step_by(BLOCK) {
        let n_rows = BLOCK.min(rows - row);
        for (piece, row) in pieces.chunks_exact_mut(n_outputs).take(n_rows).zip(row..) {
            matrix.read(row * width + column + from, piece);
        }
        for output in 0..n_outputs {
            let start = (from + output) * rows + row;
            let wanted = start.max(first)..(start + n_rows).min(end);
            if wanted.is_empty() {
                continue;
            }
            let read = pieces[output..].iter().step_by(n_outputs).skip(wanted.start - start);
            values[wanted.start - first..wanted.end - first]
                .iter_mut()
                .zip(read)
                .for_each(|(value, read)| *value = *read);
        }
    }
}
