//! Graphs that point to existing files of weights.

use crate::graphs::Noise;
use cognate_export::proto::DataLocation;
use cognate_export::{Additions, ErrorKind, Existing, Export, Metadata, read_model};
use cognate_graph::{Builder, DType, Element, Program, Recipe, Storage, Weights};
use insta::assert_snapshot;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;

const GENERATED: &str = "generated.onnx_data";
const GRAPHS: [&str; 2] = ["encoder.onnx", "decoder.onnx"];

/// A file in memory that stands for a mapped one.
#[derive(Debug)]
struct Held {
    path: PathBuf,
    bytes: Vec<u8>,
}

impl Storage for Held {
    fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn file(&self) -> Option<&Path> {
        Some(&self.path)
    }
}

/// A folder with the files `a.safetensors` and `b.safetensors` of different bytes.
fn checkpoint() -> (TempDir, [Arc<dyn Storage>; 2]) {
    let folder = tempfile::tempdir().unwrap();
    let files = [("a.safetensors", 1u8), ("b.safetensors", 3)].map(|(name, step)| {
        let path = folder.path().join(name);
        let bytes: Vec<u8> = (0..1000u32).map(|index| (index as u8).wrapping_mul(step)).collect();
        fs::write(&path, &bytes).unwrap();
        Arc::new(Held { path, bytes }) as Arc<dyn Storage>
    });
    (folder, files)
}

/// Two graphs, each with some of the weights, `[rows, 8]`.
fn programs(weights: &[(&str, Recipe)]) -> [Program; 2] {
    let all: Weights =
        weights.iter().map(|(name, recipe)| ((*name).to_owned(), recipe.clone())).collect();
    [0, 1].map(|part| {
        let builder = Builder::new(["encoder", "decoder"][part]);
        let x = builder.input("x", DType::F32, ["n".into(), cognate_graph::Dim::from(8)]);
        for (name, recipe) in weights.iter().skip(part.min(weights.len() - 1)) {
            builder.output(
                &format!("{name}.y"),
                x.linear(builder.root().parameter(name, recipe.shape()), None),
            );
        }
        Program::new(builder.finish().unwrap(), all.clone()).unwrap()
    })
}

fn write(
    folder: &Path,
    existing: Existing,
    [encoder, decoder]: &[Program; 2],
) -> Result<Vec<String>, cognate_export::Error> {
    let metadata = Metadata::default();
    let graphs = [(GRAPHS[0], encoder), (GRAPHS[1], decoder)];
    let export = Export::new(&graphs, GENERATED, &metadata);
    let mut additions = Additions::create(folder, existing)?;
    additions.replaces(&[GENERATED]);
    export.write_in_place(&mut additions)?;
    additions.write("cognate.json", b"new")?;
    Ok(additions.commit()?.files.into_iter().map(|(name, _)| name).collect())
}

/// Names and contents of a folder.
fn contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    entries
        .map(|entry| {
            (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap_or_default())
        })
        .collect()
}

#[test]
fn stored_weights_stay_where_they_are() {
    let (folder, [a, b]) = checkpoint();
    let folder = folder.path();
    let before = contents(folder);
    let table = Recipe::generated(Arc::new(Noise(3)), &[2, 8]);
    let weights = [
        ("first", Recipe::stored(a.clone(), 41..41 + 96, &[3, 8]).unwrap()),
        ("tied", Recipe::stored(a.clone(), 41..41 + 96, &[3, 8]).unwrap()),
        ("other", Recipe::stored(b.clone(), 900..964, &[16]).unwrap().reshaped(&[2, 8]).unwrap()),
        ("table", table.clone()),
        ("table_again", table.clone()),
    ];
    assert_eq!(
        write(folder, Existing::Refuse, &programs(&weights)).unwrap(),
        [GRAPHS[0], GRAPHS[1], GENERATED, "cognate.json"]
    );

    let mut lines = Vec::new();
    for file in GRAPHS {
        for tensor in read_model(&folder.join(file)).unwrap().graph.unwrap().initializer {
            assert_eq!(tensor.data_location(), DataLocation::External);
            let value = |key: &str| {
                tensor.external_data.iter().find(|entry| entry.key == key).unwrap().value.clone()
            };
            let (location, offset, length) = (value("location"), value("offset"), value("length"));
            lines.push(format!(
                "{file} {} {:?}: {location} at {offset}, {length} bytes",
                tensor.name, tensor.dims
            ));
            let start: usize = offset.parse().unwrap();
            let bytes = fs::read(folder.join(location)).unwrap()
                [start..start + length.parse::<usize>().unwrap()]
                .to_vec();
            let (_, recipe) = weights.iter().find(|(name, _)| *name == tensor.name).unwrap();
            assert_eq!(
                bytes,
                recipe.values::<f32>().into_iter().flat_map(f32::to_le_bytes).collect::<Vec<_>>(),
                "{}",
                tensor.name
            );
        }
    }
    assert_snapshot!(lines.join("\n"), @"
    encoder.onnx first [3, 8]: a.safetensors at 41, 96 bytes
    encoder.onnx tied [3, 8]: a.safetensors at 41, 96 bytes
    encoder.onnx other [2, 8]: b.safetensors at 900, 64 bytes
    encoder.onnx table [2, 8]: generated.onnx_data at 0, 64 bytes
    encoder.onnx table_again [2, 8]: generated.onnx_data at 0, 64 bytes
    decoder.onnx tied [3, 8]: a.safetensors at 41, 96 bytes
    decoder.onnx other [2, 8]: b.safetensors at 900, 64 bytes
    decoder.onnx table [2, 8]: generated.onnx_data at 0, 64 bytes
    decoder.onnx table_again [2, 8]: generated.onnx_data at 0, 64 bytes
    ");
    let after = contents(folder);
    assert_eq!(
        after.keys().collect::<Vec<_>>(),
        [
            "a.safetensors",
            "b.safetensors",
            "cognate.json",
            "decoder.onnx",
            "encoder.onnx",
            GENERATED
        ]
    );
    assert!(before.iter().all(|(name, bytes)| after[name] == *bytes));

    // The next export has no generated weights.
    write(folder, Existing::Replace, &programs(&weights[..3])).unwrap();
    assert_eq!(
        contents(folder).keys().collect::<Vec<_>>(),
        ["a.safetensors", "b.safetensors", "cognate.json", "decoder.onnx", "encoder.onnx"]
    );
}

#[cfg(unix)]
#[test]
fn offsets_need_more_than_32_bits() {
    #[derive(Debug)]
    struct Long(PathBuf, memmap2::Mmap);
    impl Storage for Long {
        fn bytes(&self) -> &[u8] {
            &self.1
        }
        fn file(&self) -> Option<&Path> {
            Some(&self.0)
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.safetensors");
    let file = fs::File::create_new(&path).unwrap();
    let end = (6usize << 30) + 200;
    // A sparse file, which uses no disk space.
    file.set_len(end as u64).unwrap();
    // SAFETY: no other process uses the file.
    let mapped = unsafe { memmap2::Mmap::map(&fs::File::open(&path).unwrap()) }.unwrap();
    let storage: Arc<dyn Storage> = Arc::new(Long(path, mapped));
    let rows = (5usize << 30) / 32;
    let start = end - 64;
    assert_eq!(start, 6_442_451_080);
    let weights = [
        ("large", Recipe::stored(storage.clone(), 8..8 + rows * 32, &[rows, 8]).unwrap()),
        ("last", Recipe::stored(storage, start..end, &[2, 8]).unwrap()),
    ];
    write(folder.path(), Existing::Refuse, &programs(&weights)).unwrap();
    let initializer =
        read_model(&folder.path().join(GRAPHS[0])).unwrap().graph.unwrap().initializer;
    let values = |index: usize| {
        initializer[index]
            .external_data
            .iter()
            .map(|entry| entry.value.as_str())
            .collect::<Vec<_>>()
    };
    assert_eq!(values(0), ["a.safetensors", "8", "5368709120"]);
    assert_eq!(values(1), ["a.safetensors", "6442451080", "64"]);
}

#[test]
fn weights_that_cannot_stay_are_refused_together() {
    let (folder, [a, _]) = checkpoint();
    let folder = folder.path();
    let elsewhere = tempfile::tempdir().unwrap();
    let outside: Arc<dyn Storage> =
        Arc::new(Held { path: elsewhere.path().join("c.safetensors"), bytes: vec![0; 64] });
    let half =
        |start| Recipe::stored_as(Element::Bf16, a.clone(), start..start + 32, &[2, 8]).unwrap();
    let weights = [
        ("single", Recipe::stored(a.clone(), 0..64, &[2, 8]).unwrap()),
        ("half", half(64)),
        ("half_too", half(128)),
        ("outside", Recipe::stored(outside, 0..64, &[2, 8]).unwrap()),
    ];
    let before = contents(folder);
    let error = write(folder, Existing::Replace, &programs(&weights)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Weights);
    let text = |error: cognate_export::Error| {
        error
            .to_string()
            .replace(&*folder.to_string_lossy(), "DIR")
            .replace(&*elsewhere.path().to_string_lossy(), "ELSEWHERE")
    };
    assert_snapshot!(text(error), @"
    DIR: graphs cannot point at its weights; export to a new folder without --in-place
      ELSEWHERE/c.safetensors: is in another folder
      half, half_too: expected f32, stored as bf16
    ");
    #[cfg(unix)]
    {
        fs::rename(folder.join("a.safetensors"), elsewhere.path().join("a.safetensors")).unwrap();
        std::os::unix::fs::symlink(
            elsewhere.path().join("a.safetensors"),
            folder.join("a.safetensors"),
        )
        .unwrap();
        assert_snapshot!(text(write(folder, Existing::Replace, &programs(&weights[..1])).unwrap_err()), @"
        DIR: graphs cannot point at its weights; export to a new folder without --in-place
          DIR/a.safetensors: is a link, which ONNX does not allow for weights; copy the file there
        ");
    }
    assert_eq!(contents(folder), before);
    // A weights file that the export would overwrite.
    let named: Arc<dyn Storage> =
        Arc::new(Held { path: folder.join(GENERATED), bytes: vec![0; 64] });
    fs::write(folder.join(GENERATED), [0; 64]).unwrap();
    let error = write(
        folder,
        Existing::Replace,
        &programs(&[("w", Recipe::stored(named, 0..64, &[2, 8]).unwrap())]),
    )
    .unwrap_err();
    assert_snapshot!(error, @"generated.onnx_data: duplicate file name");
}

#[test]
fn what_is_there_is_refused_or_replaced_as_asked() {
    let (folder, [a, _]) = checkpoint();
    let folder = folder.path();
    let programs = programs(&[("w", Recipe::stored(a, 0..64, &[2, 8]).unwrap())]);
    let text = |result: Result<Vec<String>, cognate_export::Error>| match result {
        Ok(files) => format!("written: {}", files.join(", ")),
        Err(error) => {
            format!("{:?}: {error}", error.kind()).replace(&*folder.to_string_lossy(), "DIR")
        }
    };
    fs::write(folder.join("decoder.onnx"), "old").unwrap();
    let before = contents(folder);
    assert_snapshot!(text(write(folder, Existing::Refuse, &programs)), @"Destination: DIR/decoder.onnx: exists already; pass --force to replace it");
    assert_eq!(contents(folder), before);
    assert_snapshot!(text(write(folder, Existing::Replace, &programs)), @"written: encoder.onnx, decoder.onnx, cognate.json");
    let new = contents(folder);
    assert!(new["decoder.onnx"] != b"old");

    // Another process creates a folder there before the commit.
    let mut late = Additions::create(folder, Existing::Replace).unwrap();
    for name in ["encoder.onnx", "late.onnx", "cognate.json"] {
        late.write(name, b"late").unwrap();
    }
    fs::create_dir(folder.join("late.onnx")).unwrap();
    assert_snapshot!(text(late.commit().map(|_| Vec::new())), @"Destination: DIR/late.onnx: is not a regular file and is not replaced");
    fs::remove_dir(folder.join("late.onnx")).unwrap();
    assert_eq!(contents(folder), new);

    // Nothing is left of files that are not committed.
    let mut dropped = Additions::create(folder, Existing::Replace).unwrap();
    dropped.write("encoder.onnx", b"x").unwrap();
    assert_eq!(fs::read(dropped.path().join("encoder.onnx")).unwrap(), b"x");
    drop(dropped);
    assert_eq!(contents(folder), new);
    assert_eq!(
        Additions::create(&folder.join("none"), Existing::Refuse).unwrap_err().kind(),
        ErrorKind::Io
    );
}
