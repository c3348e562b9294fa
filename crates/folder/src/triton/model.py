"""Translates the texts of requests with the package cognate (cognate-onnx)."""

import json
import math
import os

import cognate
import numpy
import triton_python_backend_utils as triton


class TritonPythonModel:
    """Triton's interface of a model."""

    def initialize(self, args):
        # The repository is also an export that the package opens; it needs `cognate.json` beside the models.
        repository = os.path.dirname(os.path.abspath(args["model_repository"]))
        self.translator = cognate.Translator(repository)

    def execute(self, requests):
        """Requests with the same parameters are translated together."""
        responses = [None] * len(requests)
        alike = {}
        for place, request in enumerate(requests):
            try:
                alike.setdefault(request.parameters() or "{}", []).append((place, texts(request)))
            except ValueError as error:
                responses[place] = failure(f"text_input: {error}")
        for parameters, group in alike.items():
            for place, response in zip((place for place, _ in group), self.answers(parameters, [lines for _, lines in group])):
                responses[place] = response
        return responses

    def answers(self, parameters, requests):
        """The responses to requests of several texts each."""
        try:
            options = json.loads(parameters)
            found = iter(self.translator.hypotheses([line for lines in requests for line in lines], **options))
        except (cognate.Error, TypeError, ValueError) as error:
            return [failure(str(error))] * len(requests)
        count = options.get("num_return_sequences", options.get("n_best", 1))
        return [response([next(found) for _ in lines], count) for lines in requests]


def texts(request):
    """The texts of a request, in UTF-8."""
    values = triton.get_input_tensor_by_name(request, "text_input").as_numpy()
    return [value.decode("utf-8") for value in values.reshape(-1)]


def response(translations, count):
    """A row for each text, with its best translations; an empty text has an empty one."""
    found = numpy.full((len(translations), count), b"", dtype=numpy.object_)
    scores = numpy.full((len(translations), count), -math.inf, dtype=numpy.float32)
    scores[:, 0] = 0
    for row, hypotheses in enumerate(translations):
        for rank, hypothesis in enumerate(hypotheses[:count]):
            found[row, rank] = hypothesis.text.encode("utf-8")
            scores[row, rank] = hypothesis.score
    return triton.InferenceResponse(output_tensors=[triton.Tensor("text_output", found), triton.Tensor("score", scores)])


def failure(message):
    return triton.InferenceResponse(output_tensors=[], error=triton.TritonError(message))
