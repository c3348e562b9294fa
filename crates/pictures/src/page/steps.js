"use strict";
// What the model does with each sentence, step by step: four parts that open, each made when it is first opened.
const stepByStep = (data, place, { make, draw, isolated }) => {
  const explained = data.examples.filter((example) => example.explained);
  if (!explained.length) return;

  const decimal = (value, digits) => value.toFixed(digits);
  const percent = (share) => `${(100 * share).toFixed(1)}%`;
  const probability = (value) => (value >= 0.0005 ? value.toFixed(3) : value.toExponential(1));

  // Left-aligned columns.
  const WORDS = new Set(["piece", "after", "most probable", "2.", "3.", "4.", "5.", "chosen", "attends to"]);
  // A table that can be wider than the window and is scrolled by arrow keys.
  const tableOf = (caption, heads, rows) => {
    const table = make("table", {}, make("caption", { textContent: caption }));
    table.append(make("thead", {}, make("tr", {}, ...heads.map((head) => make("th", { scope: "col", textContent: head, className: WORDS.has(head) ? "word" : "" })))));
    table.append(make("tbody", {}, ...rows.map((cells) => make("tr", {}, ...cells))));
    return region(caption, table);
  };
  const region = (label, node) => {
    const box = make("div", { className: "table", tabIndex: 0, ariaLabel: label }, node);
    box.setAttribute("role", "region");
    return box;
  };
  const cell = (textContent, className = "") => make("td", { textContent, className });
  const word = (textContent) => make("td", { className: "word" }, make("bdi", { textContent }));
  // A number with a bar behind it, as long as its share.
  const share = (value, text) => {
    const node = make("td", { textContent: text, className: "share" });
    node.style.setProperty("--share", Math.min(1, Math.max(0, value)));
    return node;
  };

  const embeddings = (example) => {
    const known = example.explained.embeddings.known;
    const side = (name, tokens, norms) => tableOf(
      name,
      ["at", "piece", "id", ...(norms ? ["|token|", "|position|", "|sum|"] : [])],
      tokens.map(({ piece, id }, index) => [
        cell(index + 1), word(piece), cell(id),
        ...(norms ? [norms[index].token, norms[index].position, norms[index].sum].map((norm) => cell(norm === null ? "–" : decimal(norm, 3))) : []),
      ]),
    );
    const scale = known && known.is_scaled ? `, times √${known.d_model} = ${decimal(Math.sqrt(known.d_model), 2)}` : "";
    return [
      make("div", { className: "beside" },
        ...(example.source.picture ? [] : [side("Input of the encoder", example.source.tokens, known && known.source)]),
        side("Input of the decoder, one more token at each step", example.target.read, known && known.target)),
      make("p", { className: "note", textContent: known
        ? `|·| is the Euclidean norm over ${known.d_model} values: |token| is that of the row of the embedding table${scale}; |sum| is that of the input of the first layer.`
        : `Norms are available for checkpoints and exports in f32: ${example.explained.embeddings.unknown}` }),
    ];
  };

  const layers = (example) => [
    make("div", { className: "beside" }, ...["Encoder self-attention", "Decoder self-attention", "Cross-attention"].flatMap((name, kind) => {
      if (!example.explained.layers[kind].length) return [];
      const hasOwn = kind < 2;
      return tableOf(
        name,
        ["layer", ...(hasOwn ? ["self", "previous", "next"] : []), "first", "last", "spread", "sharpest head"],
        example.explained.layers[kind].map((layer, index) => [
          cell(index + 1),
          ...[...(layer.own || []), layer.first, layer.last].map((value) => share(value, percent(value))),
          cell(decimal(layer.words, 1)),
          cell(`${layer.sharpest + 1} (${decimal(layer.sharpest_words, 1)})`),
        ]),
      );
    })),
    make("p", { className: "note", textContent: "Shares of attention, mean over tokens and heads: to the token itself, the previous and the next one, the first and the last of all; for the decoder the input token is the token itself. Spread: exp(entropy) of a row, a number of tokens, on average." }),
  ];

  const next = (example) => {
    const { steps, alignment_layer: layer } = example.explained;
    const likeliest = Math.max(...steps.map((step) => step.likeliest.length));
    const isRare = (step, index) => !step.likeliest.some(({ token }) => token.id === example.target.written[index].id);
    const likely = ({ token, probability: value }, isChosen) => {
      const node = share(value, "");
      node.classList.add("likely");
      node.append(make("bdi", { textContent: token.piece }), make("span", { textContent: probability(value) }));
      if (isChosen) {
        node.classList.add("chosen");
        node.append(make("span", { className: "aloud", textContent: " is chosen" }));
      }
      return node;
    };
    const hasRare = steps.some(isRare);
    const rows = steps.map((step, index) => {
      const written = example.target.written[index];
      const cells = [...Array(likeliest).keys()].map((rank) => {
        const found = step.likeliest[rank];
        return found ? likely(found, found.token.id === written.id) : cell("");
      });
      if (hasRare) cells.push(isRare(step, index) && step.written !== null ? likely({ token: written, probability: step.written }, true) : cell(""));
      const looks = step.looks_at.map(([at, weight]) => make("span", { className: "look" }, make("bdi", { textContent: example.source.tokens[at].piece }), ` ${decimal(weight, 2)}`));
      return [cell(index + 1), word(example.target.read[index].piece), ...cells, make("td", { className: "looks" }, ...looks)];
    });
    const ranks = [...Array(likeliest).keys()].map((rank) => (rank === 0 ? "most probable" : `${rank + 1}.`));
    return [
      tableOf("Most probable next tokens", ["step", "after", ...ranks, ...(hasRare ? ["chosen"] : []), "attends to"], rows),
      make("p", { className: "note", textContent: `Probabilities are the model's; the framed token is the chosen one. Attention: cross-attention of layer ${layer + 1}, mean of the heads.` }),
    ];
  };

  // The tree from left to right: a column for each step, a row for each end.
  const ROW = 34, GAP = 34, PIECE = "14px system-ui, sans-serif", SMALL = "11px system-ui, sans-serif";
  const measure = document.createElement("canvas").getContext("2d");
  const widthOf = (text, font) => {
    measure.font = font;
    return measure.measureText(text).width;
  };
  const tree = ({ nodes, finished }) => {
    const children = nodes.map(() => []), depth = nodes.map(() => 0);
    nodes.forEach(({ parent }, index) => {
      if (parent === null) return;
      children[parent].push(index);
      depth[index] = depth[parent] + 1;
    });
    const path = (index, most) => {
      const found = [];
      for (let at = index; at !== null && found.length < most; at = nodes[at].parent) found.push(at);
      return found.reverse();
    };
    const winner = nodes.findIndex(({ rank }) => rank === 0);
    const best = new Set(winner < 0 ? [] : path(winner, nodes.length));
    const labels = nodes.map(({ token, rank }, index) => {
      const end = rank !== null ? `#${rank + 1} ${decimal(finished[rank].score, 4)}` : children[index].length ? "" : "×";
      return { piece: token.piece, end };
    });
    const widths = [];
    labels.forEach(({ piece, end }, index) => {
      const width = widthOf(piece, `700 ${PIECE}`) + (end ? 8 + widthOf(end, `700 ${SMALL}`) : 0);
      widths[depth[index]] = Math.max(widths[depth[index]] || 0, width, 34);
    });
    const lefts = widths.map((_, column) => 12 + widths.slice(0, column).reduce((sum, width) => sum + width + GAP, 0));
    // Ends in the order in which a reader goes down; a word stands in the middle of what follows it.
    const y = [];
    let rows = 0;
    const waiting = [0];
    while (waiting.length) {
      const index = waiting.pop();
      if (!children[index].length) y[index] = 22 + ROW * rows++;
      waiting.push(...children[index].slice().reverse());
    }
    for (let index = nodes.length - 1; index >= 0; index--) {
      const below = children[index];
      if (below.length) y[index] = (y[below[0]] + y[below[below.length - 1]]) / 2;
    }
    const size = [lefts[lefts.length - 1] + widths[widths.length - 1] + 14, 22 + ROW * rows];
    const svg = draw("svg", { class: "tree", viewBox: `0 0 ${size[0]} ${size[1]}`, width: size[0], height: size[1], role: "img", "aria-label": `Tree of ${nodes.length} tokens; its ${finished.length} finished hypotheses are listed below` });
    const ends = nodes.map((_, index) => lefts[depth[index]] + widthOf(labels[index].piece, best.has(index) ? `700 ${PIECE}` : PIECE) + 5);
    nodes.forEach(({ parent }, index) => {
      if (parent === null) return;
      const [x1, x2, y1, y2] = [ends[parent], lefts[depth[index]] - 5, y[parent] - 5, y[index] - 5];
      const bend = lefts[depth[index]] - GAP + 2;
      const line = `M${x1} ${y1} H${Math.max(x1, bend)} C${bend + 16} ${y1} ${bend + 8} ${y2} ${x2} ${y2}`;
      svg.append(draw("path", { d: line, class: best.has(index) ? "best" : "" }));
    });
    nodes.forEach(({ parent, log_probability: log }, index) => {
      const { piece, end } = labels[index], x = lefts[depth[index]];
      const prefix = path(index, 20).map((at) => isolated(nodes[at].token.piece)).join(" ");
      const node = draw("g", { class: best.has(index) ? "best" : end === "×" ? "left" : "" },
        draw("title", {}, `${prefix}\nlog-probability ${decimal(log, 4)}, probability ${probability(Math.exp(log))}`),
        draw("text", { x, y: y[index] }, isolated(piece)));
      if (parent !== null) node.append(draw("text", { x, y: y[index] + 12, class: "number" }, decimal(log, 2)));
      if (end) node.append(draw("text", { x: ends[index] + 3, y: y[index], class: "end" }, end));
      svg.append(node);
    });
    return svg;
  };
  const beams = ({ explained: { beams: found } }) => {
    if (!found) return [make("p", { className: "note", textContent: "This translation was given, not searched." })];
    return [
      region(`Search tree, ${found.width} beams`, tree(found)),
      make("ol", { className: "finished" }, ...found.finished.map(({ text, score }) => make("li", {}, make("bdi", { textContent: text }), make("span", { className: "number", textContent: ` ${decimal(score, 4)}` })))),
      make("p", { className: "note", textContent: "The number below a token is the model's log-probability of all tokens up to it. # is the rank of a finished hypothesis; × is a hypothesis that was dropped. The best path is bold." }),
    ];
  };

  const parts = [
    ["Input of the encoder and the decoder", embeddings],
    ["Attention of the layers", layers],
    ["Decoding step by step", next],
    [`Beam search with ${(explained.find((example) => example.explained.beams) || { explained: { beams: { width: 1 } } }).explained.beams.width} beams`, beams],
  ];
  if (!explained.some((example) => example.explained.beams)) parts.pop();
  parts.forEach(([name, fill], index) => {
    const details = make("details", { id: `part-${index + 1}` }, make("summary", { textContent: `${index + 1}. ${name}` }));
    let isMade = false;
    const open = () => {
      if (isMade || !details.open) return;
      isMade = true;
      const made = explained.map((example) => make("article", {},
        ...(explained.length > 1 ? [make("h3", {}, make("bdi", { textContent: example.source.text }))] : []), ...fill(example)));
      // Equal notes are shown once, below the last.
      const note = (article) => article.querySelector(":scope > .note:last-child");
      made.slice(0, -1).forEach((article, at) => {
        if (note(article).textContent === note(made[at + 1]).textContent) note(article).remove();
      });
      details.append(make("div", { className: "stacked" }, ...made));
    };
    details.addEventListener("toggle", open);
    place.append(details);
  });
  place.hidden = false;
};
