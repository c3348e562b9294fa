"""Translates requests with Ray Serve: `serve run ray_serve:app` with COGNATE_MODEL, on one machine or on a cluster.

    curl -d '{"text": "A man is riding a bicycle."}' localhost:8000/
"""

import asyncio
import os

from ray import serve
from starlette.requests import Request

import cognate


@serve.deployment(num_replicas=1, ray_actor_options={"num_cpus": 1})
class Translation:
    def __init__(self, model: str) -> None:
        self.translator = cognate.Translator(model, workers=1, threads=1)

    # Requests that wait share a batch.
    @serve.batch(max_batch_size=32, batch_wait_timeout_s=0.005)
    async def translate(self, texts: list[str]) -> list[str]:
        # On a thread, so that the replica accepts requests meanwhile.
        return await asyncio.to_thread(self.translator.translate, texts)

    async def __call__(self, request: Request) -> dict[str, str]:
        body = await request.json()
        return {"translation": await self.translate(body["text"])}


app = Translation.bind(os.environ.get("COGNATE_MODEL", "testdata/multi30k-en-de"))
