"""Translates a text with Ray Data: on one machine as it is, on a cluster with RAY_ADDRESS.

    python ray_data.py MODEL INPUT.txt OUTPUT_FOLDER
"""

import sys

import ray

import cognate


def translate(model: str, source: str, out: str) -> None:
    texts = ray.data.read_text(source)
    # Each actor loads the model once, by its path, which every machine must have; one core is one worker.
    translated = texts.map_batches(
        cognate.Translator,
        fn_constructor_args=(model,),
        fn_constructor_kwargs={"workers": 1, "threads": 1},
        batch_size=256,
        num_cpus=1,
        concurrency=(1, max(1, int(ray.cluster_resources().get("CPU", 1)))),
    )
    translated.write_parquet(out)


if __name__ == "__main__":
    ray.init(ignore_reinit_error=True)
    translate(*sys.argv[1:])
