//! Results of all engines, and the use of their values.

use crate::example::{Exported, WIDTH, engines, inputs, no_past, program, relative_error};
use cognate_runtime::{Options, Reference, Runtime, Session, Source, Value, Values};
use ndarray::{ArrayD, IxDyn};
use std::num::NonZeroUsize;
use std::thread;

/// Three calls: no past, a past of one, a past of three; the second and third use the outputs of
/// the one before.
const STEPS: [[&[i64]; 2]; 3] = [[&[1], &[2]], [&[3, 4], &[5, 6]], [&[7], &[9]]];

fn steps(session: &mut dyn Session) -> Vec<Values> {
    let mut past = Value::from(no_past());
    STEPS
        .map(|ids| {
            let outputs = session.run(&inputs(ids, past.clone())).expect("a run");
            past = outputs.get("present").expect("an output").clone();
            outputs
        })
        .into()
}

fn wanted() -> Vec<Values> {
    let mut session =
        Reference::F64.load(&Source::Graph(program()), &Options::default()).expect("a legal graph");
    let mut past = Value::from(no_past().mapv(f64::from));
    STEPS
        .map(|ids| {
            let outputs = session.run(&inputs(ids, past.clone())).expect("a run");
            past = outputs.get("present").expect("an output").clone();
            outputs
        })
        .into()
}

#[test]
fn one_session_runs_many_sizes_and_agrees_with_the_reference() {
    let exported = Exported::new();
    for engine in engines() {
        let mut session =
            engine.load(&exported.source(), &Options::default()).expect("a legal file");
        assert_eq!(session.inputs(), ["ids", "past"]);
        assert_eq!(session.outputs(), ["y", "present"]);
        for (step, (found, wanted)) in steps(&mut *session).iter().zip(wanted()).enumerate() {
            for name in ["y", "present"] {
                let [found, wanted] = [found, &wanted]
                    .map(|values| values.get(name).expect("an output").to_f64().expect("floats"));
                let error = relative_error(&found, &wanted);
                assert!(
                    error <= 1e-5,
                    "{}: step {step}: {name}: relative error {error:e}",
                    session.engine()
                );
            }
        }
    }
}

#[test]
fn engines_name_their_version_and_provider() {
    let exported = Exported::new();
    for engine in engines() {
        let session = engine.load(&exported.source(), &Options::default()).expect("a legal file");
        let found = session.engine();
        let fits = match engine.name() {
            "ort" => {
                found.starts_with("ONNX Runtime 1.") && found.ends_with(", CPUExecutionProvider")
            }
            _ => found.starts_with("tract 0."),
        };
        assert!(fits, "{}: {found}", engine.name());
    }
}

#[test]
fn threads_do_not_change_the_numbers_beyond_rounding() {
    let exported = Exported::new();
    for engine in engines() {
        let options = Options { threads: NonZeroUsize::new(1), ..Options::default() };
        let mut session = engine.load(&exported.source(), &options).expect("a legal file");
        let found = steps(&mut *session)[2].get("y").expect("an output").to_f64().expect("floats");
        assert!(
            relative_error(
                &found,
                &wanted()[2].get("y").expect("an output").to_f64().expect("floats")
            ) <= 1e-5
        );
    }
}

#[test]
fn sessions_of_one_source_run_at_the_same_time() {
    let exported = Exported::new();
    let mut sources: Vec<_> =
        engines().into_iter().map(|engine| (engine, exported.source())).collect();
    sources.extend(engines().into_iter().map(|engine| (engine, Source::Graph(program()))));
    sources.push((Box::new(Reference::F32), Source::Graph(program())));
    for (engine, source) in sources {
        for threads in [1, 2] {
            let options = Options {
                threads: NonZeroUsize::new(threads),
                workers: NonZeroUsize::new(4),
                ..Options::default()
            };
            let loaded = engine.read(&source, &options).expect("a legal source");
            let worker = || {
                let mut session = loaded.clone().session();
                (0..50)
                    .flat_map(|_| steps(&mut *session))
                    .map(|outputs| outputs.get("y").expect("an output").to_f64().expect("floats"))
                    .collect()
            };
            let found: Vec<Vec<_>> = thread::scope(|scope| {
                let workers: Vec<_> = (0..4).map(|_| scope.spawn(worker)).collect();
                workers.into_iter().map(|worker| worker.join().expect("no panic")).collect()
            });
            let wanted: Vec<_> = wanted()
                .iter()
                .map(|values| values.get("y").expect("an output").to_f64().expect("floats"))
                .collect();
            for (found, wanted) in
                found.iter().flat_map(|found| found.iter().zip(wanted.iter().cycle()))
            {
                assert!(
                    relative_error(found, wanted) <= 1e-5,
                    "{} on {threads} threads",
                    engine.name()
                );
            }
        }
    }
}

#[test]
fn values_outlive_their_session_and_repeat() {
    let exported = Exported::new();
    for engine in engines() {
        let mut session =
            engine.load(&exported.source(), &Options::default()).expect("a legal file");
        let first = session.run(&inputs(STEPS[0], no_past())).expect("a run");
        let present = first.get("present").expect("an output").clone();
        let before = present.to_f32().expect("floats");
        session.run(&inputs(STEPS[1], present.clone())).expect("a run");
        drop(session);
        drop(first);
        assert_eq!(present.shape(), [2, 1, WIDTH]);
        assert_eq!(
            present.to_f32().expect("floats"),
            before,
            "{}: a later run changed the value",
            engine.name()
        );
        assert!(
            matches!(present, Value::Engine(_)),
            "{}: the value was copied to the host",
            engine.name()
        );
        assert!(matches!(present.into_host(), Ok(Value::F32(_))));
    }
}

#[test]
fn values_of_one_engine_feed_another() {
    let exported = Exported::new();
    let mut sessions: Vec<_> = engines()
        .iter()
        .map(|engine| engine.load(&exported.source(), &Options::default()).expect("a legal file"))
        .collect();
    let presents: Vec<Value> = sessions
        .iter_mut()
        .map(|session| {
            session
                .run(&inputs(STEPS[0], no_past()))
                .expect("a run")
                .remove("present")
                .expect("an output")
        })
        .collect();
    let wanted = wanted()[1].get("y").expect("an output").to_f64().expect("floats");
    for session in &mut sessions {
        for present in &presents {
            let outputs = session.run(&inputs(STEPS[1], present.clone())).expect("a run");
            let found = outputs.get("y").expect("an output").to_f64().expect("floats");
            assert!(
                relative_error(&found, &wanted) <= 1e-5,
                "{} with {present:?}",
                session.engine()
            );
        }
    }
}

#[test]
fn arrays_may_lie_in_any_order() {
    let exported = Exported::new();
    let straight = ArrayD::from_shape_fn(IxDyn(&[2, 3, WIDTH]), |index| {
        (index[0] * 12 + index[1] * 4 + index[2]) as f32 / 24.0
    });
    let mut crooked = ArrayD::zeros(IxDyn(&[WIDTH, 3, 2]));
    crooked.assign(&straight.t());
    let crooked = crooked.reversed_axes();
    assert!(
        !crooked.is_standard_layout() && crooked == straight,
        "the same array in another order"
    );
    for engine in engines() {
        let mut session =
            engine.load(&exported.source(), &Options::default()).expect("a legal file");
        let [first, second] = [straight.clone(), crooked.clone()].map(|past| {
            let outputs = session.run(&inputs(STEPS[0], past)).expect("a run");
            outputs.get("y").expect("an output").to_f32().expect("floats")
        });
        assert_eq!(first, second, "{}", engine.name());
    }
}

/// An error inside the engine that no validation of inputs can foresee leaves the session usable.
#[test]
fn a_failed_run_is_an_error_and_the_next_one_works() {
    let exported = Exported::new();
    for engine in engines() {
        let mut session =
            engine.load(&exported.source(), &Options::default()).expect("a legal file");
        let outside = session.run(&inputs([&[1], &[1000]], no_past()));
        let error = outside.expect_err("an id beyond the table");
        assert_eq!(error.kind(), cognate_runtime::ErrorKind::Run, "{error}");
        assert!(exported.redact(&error).starts_with("example.onnx: "), "{error}");
        let found = steps(&mut *session)[2].get("y").expect("an output").to_f64().expect("floats");
        assert!(
            relative_error(
                &found,
                &wanted()[2].get("y").expect("an output").to_f64().expect("floats")
            ) <= 1e-5
        );
    }
}
