//! What a model may take and give, and what it is given. A model that runs: tests/a_model_ends_turns.rs.

use ort::value::{Shape, SymbolicDimensions};

use super::*;

fn tensor(ty: TensorElementType, shape: &[i64]) -> Outlet {
    let dimension_symbols = SymbolicDimensions::empty(shape.len());
    Outlet::new("x", ValueType::Tensor { ty, shape: Shape::new(shape.iter().copied()), dimension_symbols })
}

fn float(shape: &[i64]) -> Outlet {
    tensor(TensorElementType::Float32, shape)
}

/// `Err`: why not; `Ok`: samples, or `None` for features.
fn taken(inputs: &[Outlet]) -> Result<Option<usize>, String> {
    input_of(inputs, &TurnEndConfig::default()).map(|input| match input {
        Input::Samples(samples) => Some(samples),
        Input::LogMel { .. } => None,
    })
}

#[test]
fn the_shape_says_what_a_model_takes() {
    for (shape, wanted) in [
        (&[1, 128_000][..], Some(128_000)),
        (&[1, 16_000], Some(16_000)),
        (&[-1, 48_000], Some(48_000)),
        (&[1, -1], Some(128_000)),
        (&[-1, -1], Some(128_000)),
        (&[1, 80, 800], None),
        (&[-1, 80, 800], None),
        (&[-1, 80, -1], None),
    ] {
        assert_eq!(taken(&[float(shape)]), Ok(wanted), "{shape:?}");
    }
    let config = TurnEndConfig { window_ms: 2000, ..TurnEndConfig::default() };
    assert!(matches!(input_of(&[float(&[1, -1])], &config), Ok(Input::Samples(32_000))));
}

#[test]
fn what_a_model_takes_that_is_nothing_of_ours_is_named() {
    for (inputs, reason) in [
        (vec![], "it takes 0 tensors, not one"),
        (vec![float(&[1, -1]), float(&[1])], "it takes 2 tensors, not one"),
        (vec![float(&[1, 512])], "it takes 512 samples, not 16000 to 480000"),
        (vec![float(&[2, 16_000])], "it takes float32 [2, 16000]"),
        (vec![float(&[-1])], "it takes float32 [-1]"),
        (vec![float(&[1, 128, 800])], "it takes float32 [1, 128, 800]"),
    ] {
        assert_eq!(taken(&inputs), Err(reason.to_owned()));
    }
    let reason = taken(&[tensor(TensorElementType::Int16, &[1, -1])]).unwrap_err();
    assert!(reason.contains("i16") && reason.ends_with(", not float32"), "{reason}");
}

#[test]
fn a_model_gives_one_number() {
    for shape in [&[][..], &[1], &[1, 1], &[-1, 1]] {
        assert_eq!(output_of(&[float(shape)]), Ok(()), "{shape:?}");
    }
    assert_eq!(output_of(&[float(&[1, 2])]), Err("it gives float32 [1, 2]".to_owned()));
    assert_eq!(output_of(&[float(&[1]), float(&[1])]), Err("it gives 2 tensors, not one".to_owned()));
    assert!(output_of(&[tensor(TensorElementType::Int64, &[1])]).is_err());
}

fn prepared(pcm: &[i16], rate: u32, window: usize) -> Vec<f32> {
    let mut samples = Vec::new();
    prepare(&Audio { pcm: pcm.to_vec(), rate }, window, &mut Vec::new(), &mut samples);
    samples
}

#[test]
fn silence_stands_in_front_of_short_turns_and_long_ones_are_cut() {
    assert_eq!(prepared(&[16_384, -32_768], 16_000, 4), [0.0, 0.0, 0.5, -1.0]);
    assert_eq!(prepared(&[1, 2, 3, 16_384, 8192], 16_000, 2), [0.5, 0.25]);
    assert_eq!(prepared(&[], 16_000, 2), [0.0, 0.0]);
}

#[test]
fn other_rates_are_brought_to_16_khz() {
    for rate in [24_000, 48_000] {
        let pcm = vec![8192; rate as usize / 10];
        let samples = prepared(&pcm, rate, 3200);
        assert_eq!(samples[..1590], [0.0; 1590], "a tenth of a second at {rate} Hz");
        assert!(samples[1700..3100].iter().all(|sample| (sample - 0.25).abs() < 1e-3));
    }
}

#[test]
fn a_number_is_a_probability_or_its_logit() {
    let of = |number, output| probability(number, output).map_err(|_| ());
    assert_eq!(of(0.25, TurnEndOutput::Probability), Ok(0.25));
    assert_eq!(of(1.0004, TurnEndOutput::Probability), Ok(1.0));
    assert_eq!(of(-2.0, TurnEndOutput::Probability), Err(()));
    assert_eq!(of(f32::NAN, TurnEndOutput::Probability), Err(()));
    assert_eq!(of(0.0, TurnEndOutput::Logit), Ok(0.5));
    assert_eq!(of(f32::NEG_INFINITY, TurnEndOutput::Logit), Ok(0.0));
    assert_eq!(of(f32::NAN, TurnEndOutput::Logit), Err(()));
}

#[test]
fn files_that_are_not_there_are_named_with_their_key() {
    let here = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let gone = "/nonexistent/of-the-operator";
    for (model, library, key, reason) in [
        (gone, gone, "voice.turn_end.model", "No such file"),
        (here, gone, "voice.turn_end.library", "there is no such file"),
        (here, here, "voice.turn_end.library", "invalid ELF header"),
    ] {
        let config = TurnEndConfig { model: model.to_owned(), library: library.to_owned(), ..TurnEndConfig::default() };
        let Err(problem) = OnnxModel::load(&config) else { panic!("{key} was loaded") };
        assert_eq!(problem.key, key);
        assert!(problem.reason.contains(reason) && !problem.fix.is_empty(), "{problem:?}");
    }
}

/// Against what ONNX Runtime 1.32.0 makes of it in Python, with the features of transformers 5.24.0. Its arithmetic of 8 bits takes the
/// first from 0.05 to 0.10 when features change by a millionth.
#[test]
#[ignore = "needs ONNX Runtime and smart-turn v3: tests/judge/run"]
fn smart_turn_says_what_it_says_elsewhere() {
    let path = |name| std::env::var(name).unwrap_or_else(|_| panic!("{name} is a path"));
    let (model, library) = (path("SMART_TURN"), path("ONNXRUNTIME"));
    let mut model = OnnxModel::load(&TurnEndConfig { model, library, ..TurnEndConfig::default() }).unwrap();
    #[expect(clippy::cast_possible_truncation, reason = "it is below 0.4")]
    let pcm: Vec<i16> = mel::tests::samples().iter().map(|sample| (sample * 32_768.0).round() as i16).collect();
    for (pcm, wanted) in [(&pcm[..], 0.077), (&pcm[96_000..], 0.009), (&[], 0.987)] {
        let audio = Audio { pcm: pcm.to_vec(), rate: 16_000 };
        let begun = Instant::now();
        let got = model.judge(&audio).unwrap();
        println!("{} samples: {got:.4} in {:?}", pcm.len(), begun.elapsed());
        assert!((got - wanted).abs() < 0.05, "{got} instead of {wanted}");
    }
}
