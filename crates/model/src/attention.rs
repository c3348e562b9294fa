//! Multi-head attention with scaled dot products or another score.
//!
//! `Attention(Q, K, V) = softmax(Q Kᵀ / √d_k) V`   (Vaswani et al. 2017, eq. 1)
//! `MultiHead(Q, K, V) = Concat(head_1, ..., head_h) W^O`   (section 3.2.2)
//! additive: `softmax(v·tanh(q_i + k_j)) V`   (Bahdanau et al. 2015, appendix A.1.2, in each head)
//!
//! `q: [..., heads, tgt, d_k]`, `k, v: [..., heads, src, d_k]`, `mask: [..., tgt, src]`
//! returns `[..., heads, tgt, d_k]`

use crate::dropout::Dropout;
use crate::layers::{capped, linear};
use crate::positions::Order;
use crate::span::HIDDEN;
use crate::{AttentionScore, Config, Parts, Stack};
use cognate_graph::{CachedAttention, DType, Dim, Scope, Tensor, Unary};

/// Keys and values by head: `[..., key_heads, len, d_k]`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyValue<'g> {
    pub(crate) key: Tensor<'g>,
    pub(crate) value: Tensor<'g>,
}

impl<'g> KeyValue<'g> {
    /// Projects `x: [..., len, d_model]` by `k_proj` and `v_proj`.
    pub(crate) fn project(scope: &Scope<'g>, config: &Config, stack: Stack, x: Tensor<'g>) -> Self {
        let head = |name| {
            split_heads(
                linear(&scope.at(name), config, x, stack.key_heads * stack.d_k),
                stack.key_heads,
            )
        };
        Self { key: head("k_proj"), value: head("v_proj") }
    }

    /// Appends these keys and values to `past`, along `len`.
    pub(crate) fn after(self, past: KeyValue<'g>) -> Self {
        let join = |past: Tensor<'g>, new: Tensor<'g>| {
            cognate_graph::concat(past.ty().shape.rank().saturating_sub(2), &[past, new])
        };
        Self { key: join(past.key, self.key), value: join(past.value, self.value) }
    }
}

/// The past of self-attention.
#[derive(Clone, Copy)]
pub(crate) enum Memory<'g> {
    /// No past.
    None,
    /// `[..., key_heads, past, d_k]`, to which new keys and values are appended.
    Joined(KeyValue<'g>),
    /// A cache shared by beams; see [`CachedAttention`].
    Cached { cache: KeyValue<'g>, beams: Tensor<'g> },
}

/// The outputs of self-attention besides the context.
#[derive(Clone, Copy)]
pub(crate) struct Attended<'g> {
    /// The keys and values `[..., key_heads, past + len, d_k]`, or the cache.
    pub(crate) seen: KeyValue<'g>,
    /// `[..., heads, len, past + len]`; `None` for the operator over caches, which does
    /// not return them.
    pub(crate) weights: Option<Tensor<'g>>,
}

/// Self-attention of `x: [..., len, d_model]` to itself and its past. Returns the context
/// `[..., len, d_model]`, the keys and values, and the attention weights.
pub(crate) fn self_attention<'g>(
    scope: &Scope<'g>,
    config: &Config,
    stack: Stack,
    x: Tensor<'g>,
    past: Memory<'g>,
    order: Order<'g>,
    dropout: &Dropout<'g>,
) -> (Tensor<'g>, Attended<'g>) {
    let _scope = scope.enter();
    let past = match past {
        Memory::None => None,
        Memory::Joined(past) => Some(past),
        Memory::Cached { cache, beams } => {
            return cached_self_attention(
                scope,
                config,
                stack,
                x,
                [cache.key, cache.value, beams],
                order,
            );
        }
    };
    let mut query = project_query(scope, config, stack, x);
    let mut new = KeyValue::project(scope, config, stack, x);
    if let Some(rotation) = order.rotation {
        (query, new.key) = (rotation.turn(query), rotation.turn(new.key));
    }
    let seen = past.map_or(new, |past| new.after(past));
    let (context, weights) =
        attend(Score::new(scope, config, stack), query, seen, order.mask, dropout);
    (
        linear(&scope.at("out_proj"), config, merge_heads(context), config.d_model),
        Attended { seen, weights: Some(weights) },
    )
}

/// Self-attention of one token per beam: `x: [batch, beams, 1, d_model]`, caches of keys and values
/// `[batch · beams, key_heads, capacity, d_k]`, `beams: i64 [batch, beams, past]`.
fn cached_self_attention<'g>(
    scope: &Scope<'g>,
    config: &Config,
    stack: Stack,
    x: Tensor<'g>,
    [keys, values, beams]: [Tensor<'g>; 3],
    order: Order<'g>,
) -> (Tensor<'g>, Attended<'g>) {
    let (rows, past, Stack { heads, key_heads, d_k, .. }) = (keys.dim(0), beams.dim(2), stack);
    let project = |name, heads: usize| linear(&scope.at(name), config, x, heads * d_k);
    let flat =
        |x: Tensor<'g>, heads: usize| x.reshape([rows.clone(), 1.into(), (heads * d_k).into()]);
    let turned = |x: Tensor<'g>, heads: usize| match order.rotation {
        Some(rotation) => flat(
            rotation.turn(x.reshape([rows.clone(), heads.into(), 1.into(), d_k.into()])),
            heads,
        ),
        None => flat(x, heads),
    };
    let query = turned(project("q_proj", heads), heads);
    let key = turned(project("k_proj", key_heads), key_heads);
    let value = flat(project("v_proj", key_heads), key_heads);
    let written =
        KeyValue { key: keys.cache_write(key, &past), value: values.cache_write(value, &past) };
    let bias =
        order.mask.map(|bias| bias.reshape([Dim::from(1), heads.into(), 1.into(), past + 1]));
    let scale = match config.score {
        AttentionScore::ScaledDot => scale_width(config, stack).powf(-0.5),
        AttentionScore::Dot => 1.0,
        AttentionScore::Additive => {
            scope.builder().fail("an additive score has no form over caches that beams share");
            1.0
        }
    };
    // Prompts of a decoder-only model have different lengths.
    let padded = config.parts == Parts::Decoder;
    let attention = CachedAttention {
        heads,
        key_heads,
        scale,
        cap: config.caps.scores,
        window: order.window,
        padded,
    };
    let context = query.attend_cached(attention, [written.key, written.value], beams, bias);
    let context = context.reshape([x.dim(0), x.dim(1), 1.into(), (heads * d_k).into()]);
    (
        linear(&scope.at("out_proj"), config, context, config.d_model),
        Attended { seen: written, weights: None },
    )
}

/// Cross-attention of `x: [batch, (beams,) tgt, d_model]` to the source. Returns the context,
/// shaped as `x`, and the weights `[batch, (beams,) heads, tgt, src]`.
///
/// The beams of a sentence are query positions of one attention, so keys and values are not
/// copied per beam.
pub(crate) fn cross_attention<'g>(
    scope: &Scope<'g>,
    config: &Config,
    stack: Stack,
    x: Tensor<'g>,
    source: KeyValue<'g>,
    mask: Option<Tensor<'g>>,
    dropout: &Dropout<'g>,
) -> (Tensor<'g>, Tensor<'g>) {
    let _scope = scope.enter();
    let shape = x.ty().shape;
    let [batch, beams, tgt, _] = shape.dims() else {
        let query = project_query(scope, config, stack, x);
        let (context, weights) =
            attend(Score::new(scope, config, stack), query, source, mask, dropout);
        return (
            linear(&scope.at("out_proj"), config, merge_heads(context), config.d_model),
            weights,
        );
    };
    let width = Dim::from(stack.heads * stack.d_k);
    let mut query = linear(&scope.at("q_proj"), config, x, &width);
    // One query per beam: ONNX Runtime reads keys a fifth faster if the product does not scale.
    let is_single = tgt.as_constant() == Some(1);
    let mut score = Score::new(scope, config, stack);
    if let (Product::Scaled { width }, true) = (score.product, is_single) {
        query = query * width.powf(-0.5);
        score.product = Product::Plain;
    }
    let query = query.reshape([batch, &(beams * tgt), &width]);
    let (context, weights) = attend(score, split_heads(query, stack.heads), source, mask, dropout);
    let context = merge_heads(context).reshape([batch, beams, tgt, &width]);
    let weights = weights
        .reshape([batch, &stack.heads.into(), beams, tgt, &source.key.dim(2)])
        .transpose(&[0, 2, 1, 3, 4]);
    (linear(&scope.at("out_proj"), config, context, config.d_model), weights)
}

fn project_query<'g>(
    scope: &Scope<'g>,
    config: &Config,
    stack: Stack,
    x: Tensor<'g>,
) -> Tensor<'g> {
    split_heads(linear(&scope.at("q_proj"), config, x, stack.heads * stack.d_k), stack.heads)
}

/// The number whose inverse root scales scores.
fn scale_width(config: &Config, stack: Stack) -> f32 {
    config.score_width.unwrap_or(stack.d_k as f32)
}

/// The score of one layer.
#[derive(Clone, Copy)]
struct Score<'g> {
    product: Product<'g>,
    /// See [`Caps`](crate::Caps).
    cap: Option<f32>,
}

/// The [`AttentionScore`].
#[derive(Clone, Copy)]
enum Product<'g> {
    Scaled {
        /// The number whose inverse root is the scale.
        width: f32,
    },
    Plain,
    Additive {
        /// `[heads, d_k]`
        direction: Tensor<'g>,
    },
}

impl<'g> Score<'g> {
    fn new(scope: &Scope<'g>, config: &Config, stack: Stack) -> Self {
        let product = match config.score {
            AttentionScore::ScaledDot => Product::Scaled { width: scale_width(config, stack) },
            AttentionScore::Dot => Product::Plain,
            AttentionScore::Additive => Product::Additive {
                direction: scope.at("score").parameter("weight", [stack.heads, stack.d_k]),
            },
        };
        Self { product, cap: config.caps.scores }
    }

    /// `q: [..., heads, tgt, d_k]`, `k: [..., heads, src, d_k]` -> `[..., heads, tgt, src]`
    fn of(self, q: Tensor<'g>, k: Tensor<'g>) -> Tensor<'g> {
        let scores = match self.product {
            // Half of the scale on each side, as in PyTorch: products stay in the range of f16.
            // ONNX Runtime fuses both into the product.
            Product::Scaled { width } => {
                let half = q.builder().scalar(width.powf(-0.25));
                (q * half).matmul(k.t() * half)
            }
            Product::Plain => q.matmul(k.t()),
            Product::Additive { direction } => {
                let sums = with_axis(q, 1) + with_axis(k, 2);
                let [heads, d_k] = [direction.dim(0), direction.dim(1)];
                let scores = sums.map(Unary::Tanh).matmul(direction.reshape([
                    heads,
                    1.into(),
                    d_k,
                    1.into(),
                ]));
                let mut dims = scores.ty().shape.dims().to_vec();
                dims.pop();
                scores.reshape(dims)
            }
        };
        capped(scores, self.cap)
    }
}

/// Inserts an axis of size 1 before the last `n_after` axes of `x`.
fn with_axis(x: Tensor<'_>, n_after: usize) -> Tensor<'_> {
    let mut dims = x.ty().shape.dims().to_vec();
    dims.insert(dims.len().saturating_sub(n_after), Dim::from(1));
    x.reshape(dims)
}

/// Returns the context and the attention weights `[..., heads, tgt, src]`, whose rows sum to 1.
fn attend<'g>(
    score: Score<'g>,
    q: Tensor<'g>,
    memory: KeyValue<'g>,
    mask: Option<Tensor<'g>>,
    dropout: &Dropout<'g>,
) -> (Tensor<'g>, Tensor<'g>) {
    let group = heads_per_key(q, memory.key);
    let scores = regroup(score.of(regroup(q, group, 1), memory.key), 1, group);
    let weights = mask.map_or(scores, |mask| scores + mask).softmax();
    let context = regroup(dropout.attention(weights), group, 1).matmul(memory.value);
    (regroup(context, 1, group), weights)
}

/// The number of queries' heads that share a head of keys.
fn heads_per_key(q: Tensor<'_>, k: Tensor<'_>) -> i64 {
    let heads = |x: Tensor<'_>| {
        x.dim(x.ty().shape.rank().saturating_sub(3)).as_constant().unwrap_or(1).max(1)
    };
    (heads(q) / heads(k)).max(1)
}

/// `[..., n, len, d]` -> `[..., n / joined · divided, len · joined / divided, d]`: heads that share
/// keys become positions of one head, or such positions heads again.
fn regroup(x: Tensor<'_>, joined: i64, divided: i64) -> Tensor<'_> {
    if joined == divided {
        return x;
    }
    let mut dims = x.ty().shape.dims().to_vec();
    let axis = dims.len().saturating_sub(3);
    let n = dims[axis].as_constant().unwrap_or(1);
    dims[axis] = Dim::from(n / joined * divided);
    dims[axis + 1] = (dims[axis + 1].clone() * joined).divided(divided).unwrap_or_default();
    x.reshape(dims)
}

/// `[..., len, heads * d_k]` -> `[..., heads, len, d_k]`
fn split_heads(x: Tensor<'_>, heads: usize) -> Tensor<'_> {
    let mut dims = x.ty().shape.dims().to_vec();
    let width = dims.pop().and_then(|dim| dim.as_constant()).unwrap_or(0);
    dims.extend([Dim::from(heads), Dim::from(width / heads as i64)]);
    swap_heads(x.reshape(dims))
}

/// `[..., heads, len, d_k]` -> `[..., len, heads * d_k]`
fn merge_heads(x: Tensor<'_>) -> Tensor<'_> {
    let x = swap_heads(x);
    let mut dims = x.ty().shape.dims().to_vec();
    let d_k = dims.pop().unwrap_or_default();
    let heads = dims.pop().unwrap_or_default();
    dims.push(heads * d_k);
    x.reshape(dims)
}

/// Swaps the third-last and second-last axes.
fn swap_heads(x: Tensor<'_>) -> Tensor<'_> {
    let rank = x.ty().shape.rank();
    let mut order: Vec<_> = (0..rank).collect();
    if rank >= 3 {
        order.swap(rank - 3, rank - 2);
    }
    x.transpose(&order)
}

/// The mask of a padded source, `[batch, 1, 1, src]`, from `attention_mask: i64 [batch, src]`: 1
/// for tokens and 0 for padding.
pub(crate) fn padding_mask(attention_mask: Tensor<'_>) -> Tensor<'_> {
    let builder = attention_mask.builder();
    let _scope = builder.root().at("padding_mask").enter();
    let (batch, src) = (attention_mask.dim(0), attention_mask.dim(1));
    let visible = attention_mask.cast(DType::F32).reshape([batch, 1.into(), 1.into(), src]);
    (builder.scalar(1.0) - visible) * HIDDEN
}

/// The mask of a padded source with each position visible to itself, `[batch, 1, src, src]`. If a
/// window hid all tokens from a padded position, its state would depend on the rounding of scores
/// next to [`HIDDEN`].
pub(crate) fn with_itself(mask: Tensor<'_>) -> Tensor<'_> {
    let builder = mask.builder();
    let _scope = builder.root().at("padding_mask").enter();
    let keys = builder.range(0, mask.dim(3));
    let is_itself = (keys - keys.reshape([mask.dim(3), 1.into()])).equal(builder.integer(0));
    is_itself.select(builder.scalar(0.0), mask)
}

/// The mask of a causal decoder, `[tgt, past + tgt]`: position `past + i` attends to positions
/// `0..=past + i`. With the `attention_mask: i64 [batch, past + tgt]` of the decoder's own tokens,
/// 1 for tokens and 0 for padding, it is `[batch, 1, tgt, past + tgt]`.
pub(crate) fn causal_mask<'g>(
    root: &Scope<'g>,
    past: &Dim,
    tgt: &Dim,
    attention_mask: Option<Tensor<'g>>,
) -> Tensor<'g> {
    let builder = root.builder();
    let _scope = root.at("causal_mask").enter();
    let queries = builder.range(past, past + tgt).reshape([tgt.clone(), 1.into()]);
    let keys = builder.range(0, past + tgt);
    // Compares distances, not positions: tract 0.23.9 folds `Range <= Range`, where both begin at
    // 0, into a constant of two by two.
    let is_visible = (keys - queries).less_or_equal(builder.integer(0));
    let (zero, hidden) = (builder.scalar(0.0), builder.scalar(HIDDEN));
    let mask = is_visible.select(zero, hidden);
    attention_mask.map_or(mask, |tokens| {
        let is_padding = tokens.equal(builder.integer(0)).reshape([
            tokens.dim(0),
            1.into(),
            1.into(),
            past + tgt,
        ]);
        is_padding.select(hidden, mask)
    })
}
