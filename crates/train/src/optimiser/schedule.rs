//! Learning rates by step: a rise, then the inverse square root (Vaswani et al. 2017, eq. 3).

/// The rate at `step`, counted from 1: it rises to `peak` at step `warmup_steps`, and falls with `step^-½` from there.
///
/// ```
/// use cognate_train::inverse_square_root;
/// assert_eq!([2_000, 4_000, 16_000].map(|step| inverse_square_root(step, 4_000, 1e-3)), [5e-4, 1e-3, 5e-4]);
/// ```
pub fn inverse_square_root(step: u64, warmup_steps: u64, peak: f64) -> f64 {
    let (step, warmup) = (step.max(1) as f64, warmup_steps.max(1) as f64);
    peak * (step / warmup).min((warmup / step).sqrt())
}

/// The paper's rate: `d_model^-½ · min(step^-½, step · warmup_steps^-3/2)`.
///
/// ```
/// use cognate_train::paper_rate;
/// // The base model's highest.
/// assert!((paper_rate(4_000, 4_000, 512) - 6.987712e-4).abs() < 1e-9);
/// ```
pub fn paper_rate(step: u64, warmup_steps: u64, d_model: usize) -> f64 {
    inverse_square_root(step, warmup_steps, (d_model as f64 * warmup_steps.max(1) as f64).powf(-0.5))
}
