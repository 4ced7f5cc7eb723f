"""Speaks sentences with espeak-ng, and computes what CTranslate2 hears in them, for `examples/whisper` to compare with.

    apt-get install espeak-ng sox
    pip install ctranslate2==4.8.5 faster-whisper==1.2.1 safetensors==0.8.0
    python examples/whisper/reference.py ~/.cache/burn-tpu/whisper DIR

The first folder has the files of `cargo xtask data whisper`. DIR receives a WAV file for each sentence, and
`reference.safetensors`: for each NAME.wav the spectrogram `NAME.mel [80, 3000]`, which faster-whisper makes, what the encoder
finds, `NAME.encoded [1500, 384]`, and the ids `NAME.tokens` that greedy decoding writes, all in f32 on two threads.
"""

import subprocess
import sys
import time
import wave
from pathlib import Path

import ctranslate2
import numpy as np
from faster_whisper.feature_extractor import FeatureExtractor
from safetensors.numpy import save_file
from tokenizers import Tokenizer

RATE = 16_000
SECONDS = 30
TURNS = 5
SENTENCES = {
    "weather": "The weather is nice today, and we are going to the park.",
    "numbers": "My telephone number is three five seven, two four six eight.",
    "compiler": "A compiler turns the text of a program into instructions for a machine.",
    "question": "Could you please tell me how to get to the nearest railway station?",
    "long": "When the sun went down behind the mountains, the children walked home slowly. Their mother had cooked "
    "soup, and their father told them a story about a ship that sailed around the world in eighty days.",
}


def speak(text, path):
    """Writes a sentence as 16-bit WAV at 16 kHz; espeak-ng itself speaks at 22.05 kHz."""
    spoken = subprocess.run(["espeak-ng", "-v", "en-us", "-s", "150", "--stdout", text], check=True, stdout=subprocess.PIPE)
    # Without dither, which is random.
    subprocess.run(["sox", "-D", "-t", "wav", "-", "-r", str(RATE), "-b", "16", str(path)], input=spoken.stdout, check=True)


def sound(path):
    with wave.open(str(path)) as file:
        return np.frombuffer(file.readframes(file.getnframes()), "<i2").astype(np.float32) / 32768


def main(model, folder):
    folder.mkdir(parents=True, exist_ok=True)
    whisper = ctranslate2.models.Whisper(str(model), device="cpu", compute_type="float32", intra_threads=2)
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    names = ["<|startoftranscript|>", "<|notimestamps|>"]
    if whisper.is_multilingual:
        names[1:1] = ["<|en|>", "<|transcribe|>"]
    prompt = [tokenizer.token_to_id(name) for name in names]
    extract = FeatureExtractor(feature_size=whisper.n_mels)
    arrays = {}
    for name, text in SENTENCES.items():
        speak(text, folder / f"{name}.wav")
        samples = sound(folder / f"{name}.wav")
        turns = []
        for _ in range(TURNS):
            begun, processor = time.perf_counter(), time.process_time()
            mel = extract(np.pad(samples, (0, SECONDS * RATE - samples.size)), padding=0).astype(np.float32)
            encoded = whisper.encode(ctranslate2.StorageView.from_array(mel[None]))
            between = time.perf_counter()
            (result,) = whisper.generate(encoded, [prompt], beam_size=1, max_length=448)
            ended = time.perf_counter()
            turns.append((ended - begun, between - begun, ended - between, time.process_time() - processor))
        ids = result.sequences_ids[0]
        arrays[f"{name}.mel"] = mel
        arrays[f"{name}.encoded"] = np.array(encoded)[0]
        arrays[f"{name}.tokens"] = np.array(ids, np.int32)
        all_, encoding, decoding, processor = np.median(turns, axis=0)
        seconds, tokens = samples.size / RATE, len(ids) + 1
        print(tokenizer.decode(ids).strip())
        print(
            f"  {seconds:.2f} s of sound in {all_:.2f} s, {all_ / seconds:.3f} of real time: encoder {1e3 * encoding:.0f} ms, "
            f"{tokens} tokens, {1e3 * decoding / tokens:.1f} ms each; processor {processor:.2f} s"
        )
    save_file(arrays, folder / "reference.safetensors")


if __name__ == "__main__":
    main(*(Path(argument).expanduser() for argument in sys.argv[1:]))
