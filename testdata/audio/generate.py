"""Writes the clips of this folder and transformers' features of them.

Usage: generate.py [CLIP.wav]   (16 kHz mono 16-bit, of which the first two seconds are taken; clip.wav if none is given)
Needs: torch, transformers==4.57.6, numpy, safetensors, imageio-ffmpeg
"""

import subprocess
import sys
import wave
from pathlib import Path

import imageio_ffmpeg
import numpy as np
from safetensors.numpy import save_file
from transformers import WhisperFeatureExtractor

HERE = Path(__file__).parent
FFMPEG = imageio_ffmpeg.get_ffmpeg_exe()
# Names of the files, and the encoders' options.
ENCODED = {
    "clip.flac": ["-c:a", "flac"],
    "clip.mp3": ["-c:a", "libmp3lame", "-b:a", "48k"],
    "clip.ogg": ["-c:a", "libvorbis", "-q:a", "4"],
    "clip.opus": ["-c:a", "libopus", "-b:a", "32k"],
    "clip-opus.mp4": ["-c:a", "libopus", "-b:a", "32k"],
    "clip.webm": ["-c:a", "libopus", "-b:a", "32k"],
    # Its pictures last longer.
    "clip-video.webm": ["-f", "lavfi", "-i", "color=s=16x16:r=5:d=3", "-c:a", "libopus", "-b:a", "32k", "-c:v", "libvpx"],
    "clip.m4a": ["-c:a", "aac", "-b:a", "48k"],
    "clip-24bit.wav": ["-c:a", "pcm_s24le"],
    "clip-float.wav": ["-c:a", "pcm_f32le"],
    "clip-alaw-8k.wav": ["-c:a", "pcm_alaw", "-ar", "8000"],
    "clip-stereo-44k.flac": ["-c:a", "flac", "-ar", "44100", "-af", "pan=stereo|c0=c0|c1=c0"],
}


def main() -> None:
    clip = HERE / "clip.wav"
    with wave.open(sys.argv[1] if len(sys.argv) > 1 else str(clip)) as source:
        samples = source.readframes(2 * 16_000)
    with wave.open(str(clip), "wb") as out:
        out.setparams((1, 2, 16_000, 0, "NONE", ""))
        out.writeframes(samples)
    for name, options in ENCODED.items():
        command = [FFMPEG, "-y", "-v", "error", "-i", clip, *options, "-map_metadata", "-1", "-fflags", "+bitexact", HERE / name]
        subprocess.run(command, check=True)
    signal = np.frombuffer(samples, np.int16).astype(np.float32) / 32_768
    answers = {}
    for n_mels in (80, 128):
        features = WhisperFeatureExtractor(feature_size=n_mels)(signal, sampling_rate=16_000, padding=False, return_tensors="np")
        # Every tenth frame, and the ends, where the signal is reflected.
        frames = features.input_features[0]
        chosen = [*range(0, frames.shape[1], 10), frames.shape[1] - 1]
        answers[f"features.{n_mels}"] = np.ascontiguousarray(frames[:, chosen])
    save_file(answers, HERE / "answers.safetensors")


main()
