//! A model in ONNX's format, run by ONNX Runtime, whose library is loaded when a model is configured and not before.
//!
//! What it takes, by the shape that it declares: the last samples of the turn at 16 kHz, mono, in -1..1, silence in front of what the
//! turn has not (`[1, N]`, `N` fixed or not), or the features of the last 8 s ([`super::mel`], `[1, 80, 800]`). What it gives: one number.

use std::error::Error as _;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use daemon::Problem;
use ort::environment::Environment;
use ort::logging::LogLevel;
use ort::session::Session;
use ort::value::{Outlet, TensorElementType, TensorRef, ValueType};

use super::desk::PATIENCE;
use super::mel::{self, LogMel};
use super::{Audio, Model};
use crate::config::{TurnEndConfig, TurnEndOutput};

/// Where the system looks for the library when no key names one: as developers install it, and as Linux distributions do.
const LIBRARIES: [&str; 2] = ["libonnxruntime.so", "libonnxruntime.so.1"];

/// A model that is loaded.
pub(super) struct OnnxModel {
    session: Session,
    input: Input,
    output: TurnEndOutput,
    samples: Vec<f32>,
    resampled: Vec<i16>,
    /// What it takes to look once.
    look: Duration,
}

/// What a model takes.
enum Input {
    /// So many samples.
    Samples(usize),
    /// Features of [`mel::SAMPLES`].
    LogMel { mel: Box<LogMel>, features: Vec<f32> },
}

impl OnnxModel {
    /// Loads library and model, and lets the model look at silence.
    pub(super) fn load(config: &TurnEndConfig) -> Result<Self, Problem> {
        let refused = |reason: &dyn std::fmt::Display, fix: &str| {
            Problem::new("voice.turn_end.model", format_args!("{:?}", config.model), reason, fix)
        };
        // Before the library is loaded: a file that is not there is no matter of its.
        std::fs::File::open(&config.model).map_err(|error| {
            refused(&error, "name a readable .onnx file, or leave the key out to end turns by silence alone")
        })?;
        let environment = environment(&config.library)?;
        let session = session(&environment, config)
            .map_err(|error| refused(&error, "name a model in ONNX's format that this ONNX Runtime can run"))?;
        let input = input_of(session.inputs(), config).map_err(|reason| {
            refused(
                &reason,
                "name a model that takes float32 [1, N] samples at 16 kHz or [1, 80, 800] log-mel features",
            )
        })?;
        output_of(session.outputs())
            .map_err(|reason| refused(&reason, "name a model that gives one float32: how likely the turn is over"))?;
        let (samples, resampled) = (Vec::new(), Vec::new());
        let mut model = Self { session, input, output: config.output, samples, resampled, look: Duration::ZERO };
        model.look = model.try_out().map_err(|reason| {
            let reason = format!("looking at silence it fails: {reason}");
            refused(&reason, "set voice.turn_end.output to what the model's number is, or name another model")
        })?;
        let look_ms = model.look.as_millis();
        if model.look > PATIENCE {
            tracing::warn!(model = config.model, look_ms, "the turn-end model is too slow: silence decides before it");
        } else {
            tracing::info!(model = config.model, look_ms, "turn-end model ready");
        }
        Ok(model)
    }

    /// How long it looks at silence, the first time left out: it makes room for itself then.
    fn try_out(&mut self) -> Result<Duration, String> {
        let silence = Audio { pcm: Vec::new(), rate: 16_000 };
        self.judge(&silence)?;
        let begun = Instant::now();
        self.judge(&silence)?;
        Ok(begun.elapsed())
    }

    /// How long it takes to look.
    pub(super) fn look(&self) -> Duration {
        self.look
    }

    /// What it looks at, in samples at 16 kHz.
    pub(super) fn window(&self) -> usize {
        match self.input {
            Input::Samples(samples) => samples,
            Input::LogMel { .. } => mel::SAMPLES,
        }
    }

    fn run(&mut self) -> ort::Result<f32> {
        let tensor = match &mut self.input {
            Input::Samples(samples) => TensorRef::from_array_view(([1, *samples], &self.samples[..]))?,
            Input::LogMel { mel, features } => {
                mel.features(&mut self.samples, features);
                TensorRef::from_array_view(([1, mel::BANDS, mel::FRAMES], &features[..]))?
            }
        };
        let outputs = self.session.run(ort::inputs![tensor])?;
        match outputs[0].try_extract_tensor::<f32>()? {
            (_, [number]) => Ok(*number),
            (shape, _) => Err(ort::Error::new(format!("it gives {shape} numbers, not one"))),
        }
    }
}

impl Model for OnnxModel {
    fn judge(&mut self, audio: &Audio) -> Result<f32, String> {
        let window = self.window();
        prepare(audio, window, &mut self.resampled, &mut self.samples);
        let number = self.run().map_err(|error| error.to_string())?;
        probability(number, self.output)
    }
}

/// The last `window` samples at 16 kHz, in -1..1; silence in front of less.
fn prepare(audio: &Audio, window: usize, resampled: &mut Vec<i16>, samples: &mut Vec<f32>) {
    let pcm = if audio.rate == 16_000 {
        &audio.pcm
    } else {
        resampled.clear();
        let mut resampler = voice::Resampler::new(audio.rate, 16_000);
        resampler.process(&audio.pcm, resampled);
        resampler.finish(resampled);
        &*resampled
    };
    let pcm = &pcm[pcm.len().saturating_sub(window)..];
    samples.clear();
    samples.resize(window - pcm.len(), 0.0);
    samples.extend(pcm.iter().map(|&sample| f32::from(sample) / 32_768.0));
}

fn probability(number: f32, output: TurnEndOutput) -> Result<f32, String> {
    match output {
        TurnEndOutput::Logit if number.is_nan() => Err("its number is no number".to_owned()),
        TurnEndOutput::Logit => Ok(1.0 / (1.0 + (-number).exp())),
        // Sums of rounded parts end a little beyond.
        TurnEndOutput::Probability if (-1e-3..=1.001).contains(&number) => Ok(number.clamp(0.0, 1.0)),
        TurnEndOutput::Probability => Err(format!("its number {number} is no probability")),
    }
}

/// What a model takes, or why it is none of ours.
fn input_of(inputs: &[Outlet], config: &TurnEndConfig) -> Result<Input, String> {
    let [input] = inputs else { return Err(format!("it takes {} tensors, not one", inputs.len())) };
    let one = |dimension: i64| matches!(dimension, 1 | -1);
    let shape = floats(input).ok_or_else(|| format!("it takes {}, not float32", input.dtype()))?;
    match *shape {
        [batch, -1] if one(batch) => Ok(Input::Samples(samples(config.window_ms))),
        [batch, count] if one(batch) => {
            let (least, most) = TurnEndConfig::WINDOW_MS;
            let (least, most) = (samples(least), samples(most));
            let count = usize::try_from(count).ok().filter(|count| (least..=most).contains(count));
            count.map(Input::Samples).ok_or_else(|| format!("it takes {} samples, not {least} to {most}", shape[1]))
        }
        [batch, 80, 800 | -1] if one(batch) => Ok(Input::LogMel { mel: Box::new(LogMel::new()), features: Vec::new() }),
        _ => Err(format!("it takes float32 {shape:?}")),
    }
}

fn output_of(outputs: &[Outlet]) -> Result<(), String> {
    let [output] = outputs else { return Err(format!("it gives {} tensors, not one", outputs.len())) };
    let shape = floats(output).ok_or_else(|| format!("it gives {}, not float32", output.dtype()))?;
    if shape.iter().all(|dimension| matches!(dimension, 1 | -1)) {
        Ok(())
    } else {
        Err(format!("it gives float32 {shape:?}"))
    }
}

/// The shape of a tensor of float32; -1 is any.
fn floats(outlet: &Outlet) -> Option<&[i64]> {
    match outlet.dtype() {
        ValueType::Tensor { ty: TensorElementType::Float32, shape, .. } => Some(shape),
        _ => None,
    }
}

fn samples(ms: u32) -> usize {
    usize::try_from(ms).unwrap_or(usize::MAX) * 16
}

fn session(environment: &Environment, config: &TurnEndConfig) -> ort::Result<Session> {
    Session::builder(environment)?
        .with_intra_threads(config.threads)?
        .with_inter_threads(1)?
        // Between questions its threads are to sleep.
        .with_intra_op_spinning(false)?
        .commit_from_file(&config.model)
}

/// The runtime of this process: it takes one library and is not unloaded.
static RUNTIME: Mutex<Option<Environment>> = Mutex::new(None);

fn environment(library: &str) -> Result<Environment, Problem> {
    let mut runtime = RUNTIME.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(environment) = &*runtime {
        return Ok(environment.clone());
    }
    let refused = |reason: &dyn std::fmt::Display, fix: &str| {
        Problem::new("voice.turn_end.library", format_args!("{library:?}"), reason, fix)
    };
    let fix = "name the path of libonnxruntime.so, version 1.17 or later, as in the Python package onnxruntime (onnxruntime/capi)";
    let builder = if library.is_empty() {
        let [first, second] = LIBRARIES;
        ort::init_from(first).or_else(|error| ort::init_from(second).map_err(|_| error))
    } else if Path::new(library).is_file() {
        ort::init_from(library)
    } else {
        return Err(refused(&"there is no such file", fix));
    };
    let builder = builder.map_err(|error| refused(&unloaded(&error), fix))?;
    let environment = builder
        .with_name("fronthaul")
        .with_telemetry(false)
        .with_logger(Arc::new(log))
        .build()
        .map_err(|error| refused(&error, fix))?;
    environment.set_log_level(LogLevel::Warning);
    Ok(runtime.insert(environment).clone())
}

/// With the linker's own words, which name what it misses.
fn unloaded(error: &ort::LoadDynamicError) -> String {
    match error {
        ort::LoadDynamicError::Dlopen { error: source, .. } => {
            source.source().map_or_else(|| error.to_string(), |cause| format!("it cannot be loaded: {cause}"))
        }
        _ => error.to_string(),
    }
}

fn log(level: LogLevel, _category: &str, _id: &str, _place: &str, message: &str) {
    match level {
        LogLevel::Verbose | LogLevel::Info => tracing::debug!(target: "onnxruntime", "{message}"),
        LogLevel::Warning => tracing::warn!(target: "onnxruntime", "{message}"),
        LogLevel::Error | LogLevel::Fatal => tracing::error!(target: "onnxruntime", "{message}"),
    }
}

#[cfg(test)]
mod tests;
