//! Small graphs for several tests, with computed weights.

use cognate_graph::{
    Builder, DType, Dim, Generator, Program, Recipe, Scope, Statistic, Tensor, Unary, Weights,
    concat,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Weights between -0.5 and 0.5 that depend on the seed.
#[derive(Debug)]
pub(crate) struct Noise(pub(crate) u64);

impl Generator for Noise {
    fn fill(&self, first: usize, values: &mut [f32]) {
        for (index, value) in values.iter_mut().enumerate() {
            // SplitMix64 (Steele et al. 2014).
            let mut bits = (self.0 << 32)
                .wrapping_add((first + index) as u64)
                .wrapping_mul(0x9e37_79b9_7f4a_7c15);
            bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            *value = ((bits ^ (bits >> 31)) >> 40) as f32 / (1 << 24) as f32 - 0.5;
        }
    }
}

/// The graph built by `define`, with noise as weights.
pub(crate) fn program(name: &str, define: fn(&Builder)) -> Program {
    programs(&[(name, define)]).remove(0).1
}

/// All graphs, by file stem. Weights with the same name are equal in all of them.
pub(crate) fn all() -> Vec<(&'static str, Program)> {
    programs(&[
        ("mlp", mlp),
        ("attention", attention),
        ("cross_attention", cross_attention),
        ("embeddings", embeddings),
        ("reshapes", reshapes),
        ("elementwise", elementwise),
        ("learning", learning),
        ("names", names),
    ])
}

/// A file stem and the function that builds its graph.
type Definition<'n> = (&'n str, fn(&Builder));

fn programs<'n>(definitions: &[Definition<'n>]) -> Vec<(&'n str, Program)> {
    let graph = |&(name, define): &Definition<'n>| {
        let builder = Builder::new(name);
        define(&builder);
        (name, builder.finish().unwrap())
    };
    let graphs: Vec<_> = definitions.iter().map(graph).collect();
    let mut recipes = BTreeMap::new();
    for (_, node) in graphs.iter().flat_map(|(_, graph)| graph.parameters()) {
        let noise = Arc::new(Noise(recipes.len() as u64));
        let recipe = || Recipe::generated(noise, &node.ty.shape.as_constant().unwrap());
        recipes.entry(node.name.clone()).or_insert_with(recipe);
    }
    let weights: Weights = recipes.into_iter().collect();
    graphs
        .into_iter()
        .map(|(name, graph)| (name, Program::new(graph, weights.clone()).unwrap()))
        .collect()
}

fn linear<'g>(scope: &Scope<'g>, x: Tensor<'g>, out: usize) -> Tensor<'g> {
    let width = x.dim(x.ty().shape.rank() - 1);
    let _named = scope.enter();
    x.linear(scope.parameter("weight", [out.into(), width]), Some(scope.parameter("bias", [out])))
}

fn layer_norm<'g>(scope: &Scope<'g>, x: Tensor<'g>) -> Tensor<'g> {
    let width = x.dim(x.ty().shape.rank() - 1);
    let _named = scope.enter();
    x.layer_norm(scope.parameter("weight", [&width]), scope.parameter("bias", [&width]), 1e-5)
}

/// Two post-norm feed-forward blocks and a head.
pub(crate) fn mlp(builder: &Builder) {
    let mut x = builder.input("x", DType::F32, ["batch".into(), "tgt".into(), Dim::from(8)]);
    for index in 0..2 {
        let scope = builder.root().at("layers").at(index);
        let _named = scope.enter();
        let hidden = linear(&scope.at("fc1"), x, 16).map(Unary::Relu);
        x = layer_norm(&scope.at("norm"), x + linear(&scope.at("fc2"), hidden, 8));
    }
    // A bias `[1, n]` is added to every row, too.
    builder.output(
        "y",
        linear(&builder.root().at("head"), x, 5) + builder.root().parameter("final_bias", [1, 5]),
    );
}

/// Causal self-attention with a past that may be empty; beams are an axis.
pub(crate) fn attention(builder: &Builder) {
    let (heads, d_k) = (2usize, 4usize);
    let [batch, beams, tgt, past] = ["batch", "beams", "tgt", "past"].map(Dim::symbol);
    let cache = [batch.clone(), beams.clone(), heads.into(), past.clone(), d_k.into()];
    let x = builder.input(
        "x",
        DType::F32,
        [batch.clone(), beams.clone(), tgt.clone(), (heads * d_k).into()],
    );
    let past_key = builder.input("past.key", DType::F32, cache.clone());
    let past_value = builder.input("past.value", DType::F32, cache);

    let scope = builder.root().at("self_attn");
    let _named = scope.enter();
    let in_heads = [batch.clone(), beams.clone(), tgt.clone(), heads.into(), d_k.into()];
    let split = |x| Tensor::reshape(x, in_heads.clone()).transpose(&[0, 1, 3, 2, 4]);
    let query = linear(&scope.at("q_proj"), x, heads * d_k);
    let key = concat(3, &[past_key, split(linear(&scope.at("k_proj"), x, heads * d_k))]);
    let value = concat(3, &[past_value, split(linear(&scope.at("v_proj"), x, heads * d_k))]);
    let query_positions = builder.range(&past, &past + &tgt).reshape([tgt.clone(), 1.into()]);
    let visible = builder.range(0, &past + &tgt).less_or_equal(query_positions);
    let mask = visible.select(builder.scalar(0.0), builder.scalar(-1e9));
    let scores = split(query).matmul(key.t()) * (d_k as f32).powf(-0.5) + mask;
    let merged = scores.softmax().matmul(value).transpose(&[0, 1, 3, 2, 4]);
    let context = merged.reshape([batch.clone(), beams.clone(), tgt.clone(), (heads * d_k).into()]);
    builder.output("y", linear(&scope.at("out_proj"), context, heads * d_k));
    builder.output("present.key", key);
    builder.output("present.value", value);
}

/// Attention over a source that all beams share: beams are query positions of one attention.
pub(crate) fn cross_attention(builder: &Builder) {
    let (heads, d_k) = (2usize, 4usize);
    let [batch, beams, tgt, src] = ["batch", "beams", "tgt", "src"].map(Dim::symbol);
    let x = builder.input(
        "x",
        DType::F32,
        [batch.clone(), beams.clone(), tgt.clone(), (heads * d_k).into()],
    );
    let mask = builder.input("attention_mask", DType::I64, [batch.clone(), src.clone()]);
    let memory = [batch.clone(), heads.into(), src.clone(), d_k.into()];
    let key = builder.input("cross.key", DType::F32, memory.clone());
    let value = builder.input("cross.value", DType::F32, memory);

    let scope = builder.root().at("encoder_attn");
    let _named = scope.enter();
    let rows = &beams * &tgt;
    let query = linear(&scope.at("q_proj"), x, heads * d_k);
    let query = query
        .reshape([batch.clone(), rows.clone(), heads.into(), d_k.into()])
        .transpose(&[0, 2, 1, 3]);
    let hidden =
        mask.less_or_equal(builder.integer(0)).select(builder.scalar(-1e9), builder.scalar(0.0));
    let scores =
        query.matmul(key.t()) + hidden.reshape([batch.clone(), 1.into(), 1.into(), src.clone()]);
    let context = scores.softmax().matmul(value).transpose(&[0, 2, 1, 3]);
    let context =
        context.reshape([batch.clone(), beams.clone(), tgt.clone(), (heads * d_k).into()]);
    builder.output(
        "y",
        layer_norm(&scope.at("norm"), x + linear(&scope.at("out_proj"), context, heads * d_k)),
    );
}

/// A table of tokens, positions counted from the past, and logits from the same table.
pub(crate) fn embeddings(builder: &Builder) {
    let ids = builder.input("input_ids", DType::I64, ["batch", "tgt"]);
    // Only its length is read.
    builder.input("past", DType::F32, ["batch", "past"]);
    let (past, tgt) = (Dim::symbol("past"), Dim::symbol("tgt"));
    let words = builder.root().at("shared").parameter("weight", [11, 8]);
    let positions = builder.root().at("positions").parameter("weight", [16, 8]);
    let scope = builder.root().at("decoder");
    let _named = scope.enter();
    let x = words.gather(ids) * 8f32.sqrt() + positions.gather(builder.range(&past, &past + &tgt));
    builder.output("logits", x.linear(words, None));
}

/// Shapes whose sizes are products, sums and constants.
pub(crate) fn reshapes(builder: &Builder) {
    let [a, b] = ["a", "b"].map(Dim::symbol);
    let x = builder.input("x", DType::F32, [a.clone(), b.clone(), 6.into()]);
    let padded = builder.input("padded", DType::F32, [&a * 2 - &b + 1, 3.into()]);
    builder.output("merged", x.reshape([&a * &b, 6.into()]));
    builder.output("split", x.reshape([a.clone(), b.clone(), 2.into(), 3.into()]));
    builder.output("turned", x.reshape([a.clone(), 2.into(), &b * 3]));
    builder.output("line", x.reshape([&a * &b * 6]));
    builder
        .output("again", x.reshape([&b * 6, a.clone()]).reshape([a.clone(), b.clone(), 6.into()]));
    let weight = builder.root().at("map").parameter("weight", [4, 6]);
    // The rows of a Gemm are split directly, without an intermediate shape.
    builder.output("mapped", x.linear(weight, None).reshape([a.clone(), &b * 2, 2.into()]));
    builder.output("one", builder.root().at("map").parameter("bias", [6]).linear(weight, None));
    builder.output("counted", padded.reshape([Dim::from(3), &a * 2 - &b + 1]));
    builder.output("numbers", builder.range(&a * 2 - &b, &a * &b * 2 + 5));
}

/// Every elementwise function and every element type.
pub(crate) fn elementwise(builder: &Builder) {
    let x = builder.input("x", DType::F32, ["rows".into(), Dim::from(4)]);
    let ids = builder.input("ids", DType::I64, ["rows"]);
    let sum = x + x.map(Unary::Relu) * x.map(Unary::Sigmoid)
        - x.map(Unary::Tanh) / (x.map(Unary::Erf) + 2.0);
    builder.output("sum", sum);
    let is_small =
        (ids * builder.integer(3) - builder.integer(7)).less_or_equal(builder.integer(5));
    builder.output("is_small", is_small);
    builder.output("as_number", is_small.cast(DType::F32) * 0.5 + ids.cast(DType::F32));
    builder.output("as_integer", x.cast(DType::I64));
    builder.output("chosen", x.less_or_equal(builder.scalar(0.0)).select(x, sum.softmax()));
}

/// Operations of gradients: statistics of a normalisation, exponentials of a softmax, sums, rows
/// added to a table.
pub(crate) fn learning(builder: &Builder) {
    let x = builder.input("x", DType::F32, ["batch".into(), "tgt".into(), Dim::from(8)]);
    let ids = builder.input("ids", DType::I64, ["batch", "tgt"]);
    let y = linear(&builder.root().at("fc"), x, 8);
    let normal = layer_norm(&builder.root().at("norm"), y);
    let unit = (y - y.layer_norm_statistic(Statistic::Mean, 1e-5))
        * y.layer_norm_statistic(Statistic::InverseDeviation, 1e-5);
    builder.output("normal", normal);
    builder.output("unit", unit);
    builder.output("total", y.log_sum_exp());
    builder.output("shares", y.shifted_exp() / y.shifted_exp().sum(&[2]));
    let rows = y.reshape([y.dim(0) * y.dim(1), 8.into()]);
    let table = rows.gemm(rows, [true, false]);
    builder
        .output("table", (table * table).map(Unary::Sqrt).scatter_add(ids % builder.integer(5), y));
    builder.output(
        "wide",
        y.sum(&[0, 2]).expand([y.dim(0), y.dim(1), 3.into()]).map(Unary::Exp).map(Unary::Floor),
    );
}

/// Outputs that share a value, or are an input, a weight or a number; nodes whose names are used.
pub(crate) fn names(builder: &Builder) {
    let x = builder.input("x", DType::F32, ["rows".into(), Dim::from(8)]);
    let weight = builder.root().at("shared").parameter("weight", [11, 8]);
    let number = builder.scalar(0.25);
    let (left, right) = (x + number, x - number);
    builder.output("left", left);
    builder.output("left_again", left);
    builder.output("x_again", x);
    builder.output("weight_again", weight);
    builder.output("number", number);
    // The name of another node.
    builder.output("Add", right);
    builder.output("Mul", right + right);
}
