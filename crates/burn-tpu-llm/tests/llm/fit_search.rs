//! `fit --search`, as its user runs it: a tiny mixture on a slice of four chips.
#![allow(clippy::unwrap_used, reason = "tests")]

use serde_json::Value;
use std::process::Command;

const CONFIG: &str = r#"{"model_type": "mixtral", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 96, "max_position_embeddings": 64,
    "rms_norm_eps": 1e-05, "hidden_act": "silu", "tie_word_embeddings": false, "num_local_experts": 4,
    "num_experts_per_tok": 2}"#;

/// Returns what a search prints, and the rows that it writes as JSON.
fn search(options: &str) -> (String, Vec<Value>) {
    let folder = tempfile::tempdir().unwrap();
    let (config, report) = (folder.path().join("config.json"), folder.path().join("report.json"));
    std::fs::write(&config, CONFIG).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_burn-tpu-llm"));
    command.args(["fit", "--search", "--slices", "v5e:2x2", "--model"]).arg(&config);
    let output = command.args(options.split(' ')).arg("--json").arg(&report).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut found: Value = serde_json::from_str(&std::fs::read_to_string(&report).unwrap()).unwrap();
    let rows = found[0]["rows"].take().as_array().unwrap().clone();
    (String::from_utf8(output.stdout).unwrap(), rows)
}

#[test]
fn the_layouts_of_a_step_are_compiled_and_the_best_is_named() {
    if burn_tpu_pjrt::testing::libtpu().is_none() {
        return;
    }
    let (text, rows) = search("--batch 4 --sequence 32 --candidates 2 --keep products");
    assert_eq!(rows.len(), 2, "{text}");
    for row in &rows {
        assert_eq!((&row["from"], &row["kept"]), (&"compiled".into(), &"products".into()), "{text}");
        assert!(row["figures"]["peak_bytes"].as_f64().unwrap() > 0.0, "{text}");
    }
    let best = format!("the best of them: --mesh {} --keep products\n", rows[0]["mesh"].as_str().unwrap());
    assert!(text.ends_with(&format!("{best}\n")), "{text}");
}

/// Two texts on four chips: heads are split, and texts or experts.
#[test]
fn a_decoding_step_is_split_by_heads_and_experts() {
    if burn_tpu_pjrt::testing::libtpu().is_none() {
        return;
    }
    let (text, rows) = search("--decode --batch 2 --sequence 32 --candidates 1 --dtype f32");
    assert_eq!(rows[0]["from"], "compiled", "{text}");
    assert!(["expert=2,tensor=2", "data=2,tensor=2"].contains(&rows[0]["mesh"].as_str().unwrap()), "{text}");
}
