//! `cognate attend`: pictures of a model's attention.

use crate::amounts::at_most;
use crate::messages;
use crate::observe::{ObserveOptions, SentenceOptions};
use crate::whole_file;
use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use cognate::Details;
use cognate_generate::alignment_layer;
use cognate_model::Config;
use cognate_pictures::{Attention, Document, Figure, Head, Picture, html};
use std::io::Write;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;

/// Draw the attention of a model
///
/// A Transformer has three attentions: self-attention of the encoder and of the decoder, and the
/// decoder's cross-attention to the source. In each layer there are several heads, each of which
/// gives each token weights over the tokens it attends to, which sum to 1. The page of --out
/// FILE.html shows all of them: choose a layer and a head in the grid, and point at a token or a
/// cell to read its weights. Below them is the output of `cognate explain`. The page is one file
/// and loads nothing from the network.
///
/// Tokens are pieces of the vocabulary, where ▁ or Ġ is the space before a word. A row of the
/// decoder is the token that it predicts.
///
/// With --image the source is a picture, and its tokens are patches, named by row and column. The
/// picture is paler where the chosen token attends less. With --audio the picture is the
/// spectrogram, from low frequencies at the bottom to high ones, and the tokens are its times; the
/// encoder's self-attention over them is not shown.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    #[command(flatten)]
    sentence: SentenceOptions,
    /// Show another sentence beside it; tokens that occur in both are marked
    #[arg(long, value_name = "SENTENCE", conflicts_with_all = ["image", "audio"])]
    compare: Option<String>,
    /// Translation of the other sentence [default: the model's]
    #[arg(long, value_name = "TEXT", requires = "compare")]
    compare_target: Option<String>,
    /// Write to FILE, which appears when it is complete; - is standard output
    #[arg(short, long, value_name = "FILE")]
    out: PathBuf,
    /// Output format [default: by the ending of FILE; html for -]
    #[arg(long, value_enum, value_name = "FORMAT")]
    format: Option<Format>,
    #[command(flatten)]
    figure: FigureOptions,
    #[command(flatten)]
    observe: ObserveOptions,
}

/// The attention that an SVG or PNG shows.
#[derive(clap::Args)]
struct FigureOptions {
    /// Attention of an SVG or PNG [default: cross]
    #[arg(long, value_enum, value_name = "WHICH")]
    attention: Option<Which>,
    /// Layer of an SVG or PNG, counted from 1 [default: the last but one, whose cross-attention
    /// aligns best]
    #[arg(long, value_name = "N", value_parser = at_most(1024))]
    layer: Option<NonZeroUsize>,
    /// Head of an SVG or PNG, counted from 1 [default: the mean of all]
    #[arg(long, value_name = "N", value_parser = at_most(1024))]
    head: Option<NonZeroUsize>,
    /// Picture of an SVG or PNG [default: lines]
    #[arg(long, value_enum, value_name = "HOW")]
    picture: Option<How>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A page that shows everything
    Html,
    /// A vector figure: one head, or the mean of a layer's heads
    Svg,
    /// The same figure in pixels
    Png,
    /// All weights, for programs: lists `[layer][head][row][column]`
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Which {
    /// Self-attention of the encoder
    Encoder,
    /// Self-attention of the decoder
    Decoder,
    /// Cross-attention of the decoder
    Cross,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum How {
    /// Tokens on two sides, with lines between them whose width is the weight; with --image or
    /// --audio, the picture for each token of its text
    Lines,
    /// A cell for each pair of tokens
    HeatMap,
}

const EXAMPLES: &str = "\
Examples:
  cognate attend \"A man is riding a bicycle.\" --out attention.html
  cognate attend \"A man is riding a bicycle.\" --target \"Ein Mann auf einem Rad.\" --out given.html
  cognate attend \"A man sits on the bank of a river.\" --compare \"A man walks past a bank.\" --out banks.html
  cognate attend \"Two dogs.\" --out figure.svg --layer 3 --head 2 --picture heat-map
  cognate attend \"Two dogs.\" --out figure.png --attention encoder
  cognate attend \"Two dogs.\" --out - --format json | python3 -m json.tool | less
  cognate attend --model trocr-base-printed --image line.png --out line.html
  cognate attend --model whisper-tiny.en --audio speech.wav --out speech.html
  cognate export CHECKPOINT OUT --attentions && cognate attend --model OUT \"Two dogs.\" --out dogs.html";

/// Number of likely next tokens on a page at each step.
const LIKELIEST: usize = 5;

/// Pixels of a PNG for each point of the drawing.
const PIXELS: f32 = 2.0;

/// Runs the command.
pub(crate) fn run(options: &Options, out: &mut dyn Write) -> Result<ExitCode> {
    let format = whole_file::format(options.format, &options.out, Format::Html)?;
    options.figure.check(format)?;
    whole_file::check_beside("--out", &options.out, options.sentence.file())?;
    let input = options.sentence.input()?;
    let observer = options.observe.load(&options.sentence)?;
    let model = observer.model();
    messages::status(model.source(), model.engine());
    let details = match format {
        Format::Html | Format::Json => Details::Likeliest(LIKELIEST),
        Format::Svg | Format::Png => Details::Omit,
    };
    let mut examples =
        vec![input.example(&observer, options.sentence.target.as_deref(), details)?];
    if let Some(other) = &options.compare {
        examples.push(
            observer
                .example(other, options.compare_target.as_deref(), details)
                .context("--compare")?,
        );
    }
    let document =
        Document { model: model.source().to_string(), engine: model.engine().into(), examples };
    for example in &document.examples {
        messages::note(format_args!("{} → {}", example.source.text, example.target.text));
    }
    let bytes = match format {
        Format::Html => html(&document).into_bytes(),
        Format::Json => (serde_json::to_string(&document)? + "\n").into_bytes(),
        Format::Svg => options.figure.of(model.config()).draw(&document)?.to_svg().into_bytes(),
        Format::Png => {
            let drawing = options.figure.of(model.config()).draw(&document)?;
            let lacking = drawing.lacks();
            if !lacking.is_empty() {
                let lacking: Vec<_> = lacking.into_iter().map(String::from).collect();
                messages::warning(format_args!(
                    "the font of PNG files has no {}; an SVG is drawn with its viewer's fonts",
                    cognate_pipeline::listed(&lacking)
                ));
            }
            drawing.to_png(PIXELS)?
        }
    };
    whole_file::write("--out", &options.out, &bytes, out)?;
    Ok(ExitCode::SUCCESS)
}

impl FigureOptions {
    /// # Errors
    /// If an option does not apply to the format.
    fn check(&self, format: Format) -> Result<()> {
        let name = match format {
            Format::Svg | Format::Png => return Ok(()),
            Format::Html => "a page",
            Format::Json => "JSON",
        };
        let chosen = [
            ("--attention", self.attention.is_some()),
            ("--layer", self.layer.is_some()),
            ("--head", self.head.is_some()),
            ("--picture", self.picture.is_some()),
        ];
        match chosen.iter().find(|(_, is_given)| *is_given) {
            Some((option, _)) => {
                bail!("{option}: applies to SVG and PNG only; {name} contains all attentions")
            }
            None => Ok(()),
        }
    }

    fn of(&self, config: &Config) -> Figure {
        let attention = match self.attention {
            Some(Which::Encoder) => Attention::Encoder,
            Some(Which::Decoder) => Attention::Decoder,
            Some(Which::Cross) | None => Attention::Cross,
        };
        let usual = match attention {
            Attention::Encoder => config.encoder.n_layers.saturating_sub(2),
            Attention::Decoder | Attention::Cross => alignment_layer(config),
        };
        let picture = match self.picture {
            Some(How::HeatMap) => Picture::HeatMap,
            Some(How::Lines) | None => Picture::Lines,
        };
        let from_zero = |number: NonZeroUsize| number.get() - 1;
        let (layer, head) = (
            self.layer.map_or(usual, from_zero),
            self.head.map_or(Head::Mean, |head| Head::One(from_zero(head))),
        );
        Figure { attention, layer, head, picture }
    }
}
