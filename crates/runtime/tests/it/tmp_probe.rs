use crate::example::*;
use cognate_runtime::*;
use cognate_export::*;
use cognate_model::*;
use ndarray::{ArrayD, IxDyn};
use std::time::Instant;
fn rss() -> String { std::fs::read_to_string("/proc/self/status").unwrap().lines().filter(|l| l.starts_with("VmRSS") || l.starts_with("RssAnon")).collect::<Vec<_>>().join(" ") }
#[test]
#[ignore]
fn probe() {
    let dir = std::path::Path::new("/tmp/probe_base");
    let model = Model::preset(if std::env::var_os("TMP_TINY").is_some() { Preset::Tiny } else { Preset::Base }, 1).unwrap();
    let (enc, dec) = (model.encode().unwrap(), model.step(Attentions::Omit).unwrap());
    let meta = cognate_export::Metadata::default();
    if dir.exists() { std::fs::remove_dir_all(dir).unwrap(); }
    write_folder(dir, &Export { graphs: &[("encoder.onnx", &enc), ("decoder.onnx", &dec)], weights_file: "weights.onnx_data", metadata: &meta }, &[], Existing::Refuse).unwrap();
    let which = std::env::var("TMP_ENGINE").unwrap();
    let threads = std::env::var("TMP_THREADS").ok().and_then(|t| t.parse().ok());
    let engine = which.parse::<Engine>().unwrap().open(Device::Cpu).unwrap();
    let options = Options { threads, ..Options::default() };
    let t = Instant::now();
    let mut e = engine.load(&Source::Onnx(dir.join("encoder.onnx")), &options).unwrap();
    let mut d = engine.load(&Source::Onnx(dir.join("decoder.onnx")), &options).unwrap();
    println!("{} load {:?} {}", d.engine(), t.elapsed(), rss());
    let heads = 8usize; let dk = model.config().d_model / heads; let heads = model.config().decoder.heads; let dk = if heads == 8 { dk } else { model.config().d_model / heads };
    let layers = model.config().decoder.n_layers;
    let n: usize = std::env::var("TMP_SENT").ok().and_then(|t| t.parse().ok()).unwrap_or(6);
    for sentence in 0..n {
        let (batch, src) = (1 + sentence % 2 * 7, 12 + sentence);
        let ids = ArrayD::from_shape_fn(IxDyn(&[batch, src]), |i| (i[0] * 31 + i[1] * 7 + 5) as i64 % 1000);
        let mask = ArrayD::from_elem(IxDyn(&[batch, src]), 1i64);
        let t = Instant::now();
        let mut values: Values = [("input_ids", Value::from(ids)), ("attention_mask", Value::from(mask.clone()))].into_iter().collect();
        let mut out = e.run(&values).unwrap();
        let te = t.elapsed();
        values = Values::new();
        values.insert("attention_mask", mask);
        for l in 0..layers { for name in Names::cross(l) { values.insert(name.clone(), out.remove(&name).unwrap()); }
            for name in Names::past(l) { values.insert(name, ArrayD::<f32>::zeros(IxDyn(&[batch, 1, heads, 0, dk]))); } }
        let t = Instant::now();
        let mut check = 0.0;
        let steps = 48;
        for step in 0..steps {
            values.insert("input_ids", ArrayD::from_elem(IxDyn(&[batch, 1, 1]), (step % 1000) as i64));
            let mut out = d.run(&values).unwrap();
            let logits = out.remove("logits").unwrap().to_f32().unwrap();
            check += logits[[0, 0, 0, 3]];
            for l in 0..layers { for (past, present) in Names::past(l).into_iter().zip(Names::present(l)) { values.insert(past, out.remove(&present).unwrap()); } }
        }
        println!("batch {batch} src {src}: encode {te:?}, step {:?} check {check} {}", t.elapsed() / steps, rss());
    }
}
