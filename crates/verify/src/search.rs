//! A graph that decodes by itself: its sequences and scores on each runtime compared with those of
//! the reference.

use crate::reports::{agreement, row};
use crate::subject::{join, load_reference, methods};
use crate::{CLOSE, Error, Result, Subject, compare};
use cognate_folder::{RuntimeReport, Verification};
use cognate_generate::{
    Hypothesis, SearchDecoder, SearchLimits, Settings, Sources, first_scores, search_program,
};
use cognate_model::{Attentions, Layout};
use cognate_runtime::{Options, Reference, Runtime, Session, Source};
use ndarray::{Array1, ArrayD};

/// As [`verify`](crate::verify): the reference evaluates the graph of the model's search in f64.
pub(crate) fn verify_search(
    subject: &Subject<'_>,
    sources: Sources<'_>,
    runtimes: &[(Box<dyn Runtime>, Options)],
    mut progress: impl FnMut(&str),
) -> Result<Verification> {
    let failed = |error: &dyn std::fmt::Display| Error::runtime("reference", error);
    let [encoder, step] = subject.model.graphs(Layout::Generate, Attentions::Omit)?;
    let limits =
        SearchLimits { positions: subject.model.config().max_positions, sizes: subject.sizes };
    let program = search_program([&encoder, &step], &subject.settings, limits);
    let program = program.map_err(|error| failed(&error))?;
    let reference = Reference::F64
        .load(&Source::Graph(program), &Options::default())
        .map_err(|error| failed(&error))?;
    let mut report =
        Verification::new(reference.engine(), subject.tolerance.relative_l2, subject.seed);
    let mut whole = decoder(reference, subject)?;
    let methods = methods(subject);
    let mut expected = Vec::new();
    for settings in &methods {
        progress(&format!("reference evaluator, {} beams", settings.num_beams));
        expected.push(subject.decoding(sources, settings).generate(&mut whole)?);
    }
    drop(whole);
    let logits = size_of_logits(subject, sources)?;
    report.batches = methods.len();
    for (runtime, options) in runtimes {
        progress(runtime.name());
        let path = subject.folder.join(subject.layout.files()[0]);
        let session = runtime
            .load(&Source::Onnx(path), options)
            .map_err(|error| Error::runtime(runtime.name(), error))?;
        let engine = session.engine().to_owned();
        let mut decoder = decoder(session, subject)?;
        let mut decoding = Vec::new();
        let mut scores: [Vec<f64>; 2] = Default::default();
        for (settings, expected) in methods.iter().zip(&expected) {
            let found = subject.decoding(sources, settings).generate(&mut decoder)?;
            let is_equal =
                found.iter().zip(expected).all(|(found, expected)| found.tokens == expected.tokens);
            // Only the search outside of a graph returns margins.
            let sure =
                if is_equal { expected.clone() } else { margins(subject, sources, settings)? };
            decoding.push(agreement(&found, &sure, settings));
            for (found, expected) in found.iter().zip(expected) {
                if found.tokens == expected.tokens {
                    scores[0].push(found.score.into());
                    scores[1].push(expected.score.into());
                }
            }
        }
        let scores = scores.map(|scores| Array1::from_vec(scores).into_dyn());
        let mut measured = compare(&scores[0], &scores[1]).expect("as many of each");
        // A score is a mean of differences between logits, whose errors it has.
        measured.relative_l2 *= (root_mean_square(&scores[1]) / logits).min(1.0);
        let steps = match subject.tolerance.relative_l2 > CLOSE.relative_l2 {
            true => Some(
                subject
                    .decoding(sources, &methods[0])
                    .along(&mut decoder, &expected[0], subject.tolerance.equal_steps)?
                    .0,
            ),
            false => None,
        };
        let outputs = vec![row("generate", "scores".into(), measured)];
        report.runtimes.push(RuntimeReport { engine, outputs, decoding, steps, vectors: None });
    }
    Ok(report)
}

/// The root mean square of the logits after the start token.
fn size_of_logits(subject: &Subject<'_>, sources: Sources<'_>) -> Result<f64> {
    let subject = Subject { layout: Layout::Cognate, ..subject.clone() };
    let mut decoder = join(&subject, load_reference(&subject)?)?;
    let logits = first_scores(decoder.as_mut(), sources, subject.settings.start_token)
        .map_err(|error| Error::runtime("reference", error))?;
    Ok(root_mean_square(&logits.mapv(f64::from).into_dyn()))
}

fn root_mean_square(values: &ArrayD<f64>) -> f64 {
    let sum: f64 = values.iter().map(|value| value * value).sum();
    (sum / values.len().max(1) as f64).sqrt()
}

/// The hypotheses of the search on the reference's graphs, with its margins.
fn margins(
    subject: &Subject<'_>,
    sources: Sources<'_>,
    settings: &Settings,
) -> Result<Vec<Hypothesis>> {
    let subject = Subject { layout: Layout::Cognate, ..subject.clone() };
    let mut decoder = join(&subject, load_reference(&subject)?)?;
    subject.decoding(sources, settings).generate(decoder.as_mut())
}

fn decoder(session: Box<dyn Session>, subject: &Subject<'_>) -> Result<SearchDecoder> {
    let engine = session.engine().to_owned();
    let pad_token = subject.model.config().source_pad(subject.settings.pad_token);
    let decoder =
        SearchDecoder::new(session, pad_token).map_err(|error| Error::runtime(&engine, error))?;
    Ok(decoder.with_sizes(subject.sizes))
}
