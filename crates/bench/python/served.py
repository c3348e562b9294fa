"""CTranslate2 behind FastAPI, for `cargo xtask bench serve`.

    python served.py FOLDER TOKENIZER TYPE BEAMS WORKERS PORT

Requests that wait while others are translated are translated together in the next batch, one batch a worker at a time.
"""

import asyncio
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel

from text import Text

BATCH_TOKENS = 2048

os.environ["TOKENIZERS_PARALLELISM"] = "false"
*model, workers, port = sys.argv[1:]
workers = int(workers)
text = Text(*model, workers)
waiting = asyncio.Queue()
threads = ThreadPoolExecutor(workers)


class Request(BaseModel):
    q: str
    source: str
    target: str


async def work():
    loop = asyncio.get_running_loop()
    while True:
        batch = [await waiting.get()]
        while not waiting.empty() and len(batch) < 128:
            batch.append(waiting.get_nowait())
        found = await loop.run_in_executor(threads, text.translate, [line for line, _ in batch], BATCH_TOKENS)
        for (_, answer), line in zip(batch, found):
            answer.set_result(line)


@asynccontextmanager
async def working(_):
    tasks = [asyncio.create_task(work()) for _ in range(workers)]
    yield
    for task in tasks:
        task.cancel()


app = FastAPI(lifespan=working)


@app.get("/health")
async def health():
    return {"status": "ok"}


@app.post("/translate")
async def translate(request: Request):
    answer = asyncio.get_running_loop().create_future()
    await waiting.put((request.q, answer))
    return {"translatedText": await answer}


uvicorn.run(app, host="127.0.0.1", port=int(port), log_level="warning")
