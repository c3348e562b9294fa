//! Symbolic sizes: integer polynomials over named axes, in canonical form.
//!
//! `past + tgt`, `beams*tgt` and `512` are all [`Dim`]s. Two dims are equal if and only if their
//! polynomials are, so shape inference compares them without knowing any size.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::{Add, Mul, Sub};
use std::sync::Arc;

/// The name of a size that is known only at run time, such as `batch`.
pub type Symbol = Arc<str>;

/// A size: an integer polynomial over [`Symbol`]s.
///
/// ```
/// use cognate_graph::Dim;
/// let (past, tgt) = (Dim::symbol("past"), Dim::symbol("tgt"));
/// assert_eq!(&past + &tgt, &tgt + &past);
/// assert_eq!((&past + &tgt - &past).to_string(), "tgt");
/// assert_eq!((Dim::from(2) * (&past + 1)).to_string(), "2*past + 2");
/// ```
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Dim {
    /// Coefficient of each product of symbols (sorted, repeated for powers); the empty product is
    /// the constant term. No coefficient is zero.
    terms: BTreeMap<Vec<Symbol>, i64>,
}

/// The parts of a size `factor*symbol + constant`; see [`Dim::as_linear`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Linear<'d> {
    /// The symbol.
    pub symbol: &'d Symbol,
    /// Its factor, above 0.
    pub factor: i64,
    /// The constant term.
    pub constant: i64,
}

impl Linear<'_> {
    /// The symbol's value for which the size is `size`; `None` if there is none.
    pub fn solve(&self, size: usize) -> Option<usize> {
        let product = i64::try_from(size).ok()?.checked_sub(self.constant)?;
        (product % self.factor == 0).then(|| usize::try_from(product / self.factor).ok())?
    }
}

impl Dim {
    /// The size named `name`.
    pub fn symbol(name: &str) -> Self {
        Self { terms: BTreeMap::from([(vec![Symbol::from(name)], 1)]) }
    }

    /// The value, if no symbol occurs.
    pub fn as_constant(&self) -> Option<i64> {
        match self.terms.len() {
            0 => Some(0),
            1 => self.terms.get(&[] as &[Symbol]).copied(),
            _ => None,
        }
    }

    /// The name, if the size is a single symbol.
    pub fn as_symbol(&self) -> Option<&Symbol> {
        self.as_linear()
            .filter(|linear| (linear.factor, linear.constant) == (1, 0))
            .map(|linear| linear.symbol)
    }

    /// The parts, if the size is `factor*symbol + constant` with a positive factor.
    pub fn as_linear(&self) -> Option<Linear<'_>> {
        let constant = self.terms.get(&[] as &[Symbol]).copied().unwrap_or(0);
        let mut products = self.terms.iter().filter(|(product, _)| !product.is_empty());
        match (products.next(), products.next()) {
            (Some((product, &factor @ 1..)), None) if product.len() == 1 => {
                Some(Linear { symbol: &product[0], factor, constant })
            }
            _ => None,
        }
    }

    /// Coefficients with their products of symbols, the constant (empty product) first.
    pub fn terms(&self) -> impl Iterator<Item = (&[Symbol], i64)> {
        self.terms.iter().map(|(product, &coefficient)| (product.as_slice(), coefficient))
    }

    /// Every symbol that occurs, each once.
    pub fn symbols(&self) -> impl Iterator<Item = &Symbol> {
        let all: std::collections::BTreeSet<_> = self.terms.keys().flatten().collect();
        all.into_iter()
    }

    /// The value under `bindings`; `None` if a symbol is unbound or the value overflows.
    pub fn evaluate(&self, bindings: &Bindings) -> Option<i64> {
        self.terms.iter().try_fold(0i64, |sum, (product, &coefficient)| {
            let value = product.iter().try_fold(coefficient, |value, symbol| {
                let size = i64::try_from(*bindings.sizes.get(symbol)?).ok()?;
                value.checked_mul(size)
            })?;
            sum.checked_add(value)
        })
    }

    /// The size with the symbols in `bindings` replaced by their values.
    #[must_use]
    pub fn bound(&self, bindings: &Bindings) -> Self {
        let mut bound = Self::default();
        for (product, &coefficient) in &self.terms {
            let size = |symbol: &Symbol| {
                bindings.sizes.get(symbol).map(|&size| i64::try_from(size).unwrap_or(i64::MAX))
            };
            let (known, left): (Vec<_>, Vec<_>) =
                product.iter().cloned().partition(|symbol| size(symbol).is_some());
            bound
                .insert(left, known.iter().filter_map(size).fold(coefficient, i64::saturating_mul));
        }
        bound
    }

    /// The size with the symbol `from` called `to`.
    #[must_use]
    pub fn renamed(&self, from: &str, to: &str) -> Self {
        let rename = |symbol: &Symbol| if **symbol == *from { to.into() } else { symbol.clone() };
        let mut renamed = Self::default();
        for (product, &coefficient) in &self.terms {
            let mut product: Vec<_> = product.iter().map(rename).collect();
            product.sort();
            renamed.insert(product, coefficient);
        }
        renamed
    }

    /// `⌊self / by⌋` of a positive number, if that is a polynomial: all coefficients except the
    /// constant are multiples of `by`.
    pub fn divided(&self, by: i64) -> Option<Self> {
        let quotient = |(product, coefficient): (&Vec<Symbol>, &i64)| {
            (product.is_empty() || coefficient % by == 0)
                .then(|| (product.clone(), coefficient.div_euclid(by)))
        };
        let terms = self.terms.iter().map(quotient).collect::<Option<BTreeMap<_, _>>>()?;
        Some(Self {
            terms: terms.into_iter().filter(|(_, coefficient)| *coefficient != 0).collect(),
        })
    }

    fn insert(&mut self, product: Vec<Symbol>, coefficient: i64) {
        let total = self.terms.get(&product).copied().unwrap_or(0).saturating_add(coefficient);
        if total == 0 {
            self.terms.remove(&product);
        } else {
            self.terms.insert(product, total);
        }
    }
}

impl From<i64> for Dim {
    fn from(value: i64) -> Self {
        let mut dim = Self::default();
        dim.insert(Vec::new(), value);
        dim
    }
}

impl From<usize> for Dim {
    fn from(value: usize) -> Self {
        Self::from(i64::try_from(value).unwrap_or(i64::MAX))
    }
}

impl From<i32> for Dim {
    fn from(value: i32) -> Self {
        Self::from(i64::from(value))
    }
}

impl From<&str> for Dim {
    fn from(name: &str) -> Self {
        Self::symbol(name)
    }
}

impl From<&Dim> for Dim {
    fn from(dim: &Dim) -> Self {
        dim.clone()
    }
}

fn sum(left: &Dim, right: &Dim, sign: i64) -> Dim {
    let mut dim = left.clone();
    for (product, &coefficient) in &right.terms {
        dim.insert(product.clone(), sign * coefficient);
    }
    dim
}

fn product(left: &Dim, right: &Dim) -> Dim {
    let mut dim = Dim::default();
    for (a, &x) in &left.terms {
        for (b, &y) in &right.terms {
            let mut symbols = [a.as_slice(), b.as_slice()].concat();
            symbols.sort();
            dim.insert(symbols, x.saturating_mul(y));
        }
    }
    dim
}

/// Implements an operator for owned and borrowed left sides and anything that converts to a dim on
/// the right.
macro_rules! operator {
    ($trait:ident, $method:ident, $with:expr) => {
        impl<D: Into<Dim>> $trait<D> for Dim {
            type Output = Dim;
            fn $method(self, right: D) -> Dim {
                $with(&self, &right.into())
            }
        }
        impl<D: Into<Dim>> $trait<D> for &Dim {
            type Output = Dim;
            fn $method(self, right: D) -> Dim {
                $with(self, &right.into())
            }
        }
    };
}
operator!(Add, add, |a: &Dim, b: &Dim| sum(a, b, 1));
operator!(Sub, sub, |a: &Dim, b: &Dim| sum(a, b, -1));
operator!(Mul, mul, product);

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let constant = self.terms.get(&[] as &[Symbol]).copied();
        let products = self.terms.iter().filter(|(product, _)| !product.is_empty());
        let mut first = true;
        for (product, &coefficient) in products {
            let sign = match (first, coefficient < 0) {
                (true, true) => "-",
                (true, false) => "",
                (false, true) => " - ",
                (false, false) => " + ",
            };
            f.write_str(sign)?;
            if coefficient.abs() != 1 {
                write!(f, "{}*", coefficient.abs())?;
            }
            f.write_str(&product.join("*"))?;
            first = false;
        }
        match constant {
            None if first => f.write_str("0"),
            None => Ok(()),
            Some(value) if first => write!(f, "{value}"),
            Some(value) if value < 0 => write!(f, " - {}", value.abs()),
            Some(value) => write!(f, " + {value}"),
        }
    }
}

impl fmt::Debug for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The sizes of symbols in one run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bindings {
    sizes: BTreeMap<Symbol, usize>,
}

impl Bindings {
    /// Binds `symbol` to a size. The error is its previous size, if that is different.
    pub fn bind(&mut self, symbol: &Symbol, size: usize) -> Result<(), usize> {
        match self.sizes.insert(symbol.clone(), size) {
            Some(before) if before != size => Err(before),
            _ => Ok(()),
        }
    }
}
