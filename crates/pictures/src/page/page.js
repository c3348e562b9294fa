"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const byId = (id) => document.getElementById(id);
  const make = (name, properties = {}, ...children) => {
    const node = Object.assign(document.createElement(name), properties);
    node.append(...children);
    return node;
  };
  const draw = (name, attributes, ...children) => {
    const node = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    node.append(...children);
    return node;
  };

  // Numbers of 6 bits a character; see pack.rs.
  const digits = new Uint8Array(128);
  [..."ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"].forEach((c, value) => { digits[c.charCodeAt(0)] = value; });
  const number = (text, at, length) => {
    let value = 0;
    for (let index = at; index < at + length; index++) value = value * 64 + digits[text.charCodeAt(index)];
    return value;
  };
  const ONE = 2 ** 24 - 1;

  const KINDS = [
    { key: "encoder_attentions", name: "Encoder self", meaning: "Each source token (left) attends to all source tokens." },
    { key: "decoder_attentions", name: "Decoder self", meaning: "Each target token (left) attends to the start token and the target tokens before it." },
    { key: "cross_attentions", name: "Cross", meaning: "Each target token (left) attends to the source tokens." },
  ];
  const words = (example, kind) => ({
    rows: kind === 0 ? example.source.tokens : example.target.written,
    columns: kind === 1 ? example.target.read : example.source.tokens,
  });
  const sizes = (kind) => data.examples[0][KINDS[kind].key].shape;

  // One head of one layer, or with head = heads their mean: { rows, columns, values, least }, where `least` has the smallest weight
  // that is kept of each row, if not all are.
  const read = (example, kind, layer, head) => {
    const packed = example[KINDS[kind].key];
    const [, heads, rows, columns] = packed.shape;
    const values = new Float32Array(rows * columns);
    if (packed.kept === null) {
      const chosen = head < heads ? [head] : [...Array(heads).keys()];
      for (const one of chosen) {
        const first = (layer * heads + one) * rows * columns;
        for (let index = 0; index < rows * columns; index++) values[index] += number(packed.data, 4 * (first + index), 4) / ONE / chosen.length;
      }
      return { rows, columns, values, least: null };
    }
    const least = new Float32Array(rows).fill(1);
    for (let row = 0; row < rows; row++) {
      const first = ((layer * (heads + 1) + head) * rows + row) * packed.kept;
      for (let index = first; index < first + packed.kept; index++) {
        const weight = number(packed.data, 7 * index + 3, 4) / ONE;
        values[row * columns + number(packed.data, 7 * index, 3)] = weight;
        least[row] = Math.min(least[row], weight);
      }
    }
    return { rows, columns, values, least };
  };

  const last = (kind) => sizes(kind)[0] - 1;
  const state = { kind: 2, picture: data.examples.length > 1 ? "lines" : "both", layer: Math.max(0, last(2) - 1), head: sizes(2)[1] };
  let views = [];

  const isDark = () => {
    const chosen = document.documentElement.dataset.theme;
    return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  };
  const css = (name) => getComputedStyle(document.body).getPropertyValue(name).trim();
  const colour = (share) => {
    const stops = data.ramps[isDark() ? "dark" : "light"];
    const place = Math.min(1, Math.max(0, share)) * (stops.length - 1);
    const low = Math.min(stops.length - 2, Math.floor(place));
    const mix = (channel) => Math.round(stops[low][channel] + (place - low) * (stops[low + 1][channel] - stops[low][channel]));
    return [mix(0), mix(1), mix(2)];
  };
  // As in WCAG 2.2: below 0.179 white has more contrast.
  const luminance = (channels) => {
    const [red, green, blue] = channels.map((channel) => (channel <= 10 ? channel / 255 / 12.92 : ((channel / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const resolved = (name) => {
    // light-dark() is resolved by the browser for properties, not for variables.
    const probe = make("span");
    probe.style.color = `var(${name})`;
    document.body.append(probe);
    const value = getComputedStyle(probe).color;
    probe.remove();
    return value;
  };

  // Sizes a canvas in CSS pixels, and scales it for the screen.
  const canvasOf = (canvas, width, height) => {
    const ratio = devicePixelRatio || 1;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
    const context = canvas.getContext("2d");
    context.scale(ratio, ratio);
    return context;
  };

  // Thumbnails: each point shows the largest weight that falls on it.
  const thumbnail = (canvas, map, size) => {
    const width = Math.min(size, map.columns), height = Math.min(size, map.rows);
    const points = new Float32Array(width * height);
    let most = 1e-9;
    for (let row = 0; row < map.rows; row++) {
      for (let column = 0; column < map.columns; column++) {
        const at = Math.floor((row * height) / map.rows) * width + Math.floor((column * width) / map.columns);
        points[at] = Math.max(points[at], map.values[row * map.columns + column]);
        most = Math.max(most, points[at]);
      }
    }
    canvas.width = width;
    canvas.height = height;
    canvas.style.width = `${size}px`;
    canvas.style.height = `${size}px`;
    canvas.style.imageRendering = "pixelated";
    const context = canvas.getContext("2d"), image = context.createImageData(width, height);
    points.forEach((weight, index) => image.data.set([...colour(weight / most), 255], 4 * index));
    context.putImageData(image, 0, 0);
  };

  // A group of buttons of which one is chosen; `width` of them stand in a row.
  const radios = (group, buttons, width, choose) => {
    buttons.forEach((button, index) => {
      button.type = "button";
      button.setAttribute("role", "radio");
      button.addEventListener("click", () => choose(index));
      button.addEventListener("keydown", (event) => {
        const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: width, ArrowUp: -width, Home: -index, End: buttons.length - 1 - index };
        const to = index + steps[event.key];
        if (!(event.key in steps) || !(to in buttons)) return;
        event.preventDefault();
        choose(to);
        buttons[to].focus();
      });
    });
    return (chosen) => buttons.forEach((button, index) => {
      button.setAttribute("aria-checked", index === chosen);
      button.tabIndex = index === chosen ? 0 : -1;
    });
  };

  // The encoder's attention over audio is not known.
  const known = [0, 1, 2].filter((kind) => sizes(kind)[0]);
  const kindButtons = known.map((kind) => make("button", { textContent: KINDS[kind].name }));
  byId("kinds").append(...kindButtons);
  const markKind = radios(byId("kinds"), kindButtons, 1, (index) => {
    const kind = known[index];
    Object.assign(state, { kind, layer: Math.min(state.layer, last(kind)), head: state.head === sizes(state.kind)[1] ? sizes(kind)[1] : Math.min(state.head, sizes(kind)[1]) });
    showHeads();
    show();
  });
  const PICTURES = ["lines", "map", "both"];
  const pictureButtons = ["Lines", "Heat map", "Both"].map((textContent) => make("button", { textContent }));
  byId("pictures").append(...pictureButtons);
  const markPicture = radios(byId("pictures"), pictureButtons, 1, (index) => {
    state.picture = PICTURES[index];
    show();
  });

  let markHead = () => {};
  const showHeads = () => {
    const [layers, heads] = sizes(state.kind);
    const grid = byId("heads");
    grid.replaceChildren(make("span"));
    grid.style.gridTemplateColumns = `repeat(${heads + 2}, max-content)`;
    for (let head = 0; head <= heads; head++) grid.append(make("span", { textContent: head < heads ? `head ${head + 1}` : "mean" }));
    const size = Math.max(18, Math.min(44, Math.floor((330 / (heads + 1) - 12) / data.examples.length)));
    const buttons = [];
    for (let layer = 0; layer < layers; layer++) {
      grid.append(make("span", { className: "layer", textContent: `layer ${layer + 1}` }));
      for (let head = 0; head <= heads; head++) {
        const button = make("button", { ariaLabel: named(layer, head) });
        for (const example of data.examples) {
          const canvas = make("canvas");
          thumbnail(canvas, read(example, state.kind, layer, head), size);
          button.append(canvas);
        }
        buttons.push(button);
        grid.append(button);
      }
    }
    markHead = radios(grid, buttons, heads + 1, (index) => {
      Object.assign(state, { layer: Math.floor(index / (heads + 1)), head: index % (heads + 1) });
      show();
    });
  };
  const named = (layer, head) => `layer ${layer + 1}, ${head < sizes(state.kind)[1] ? `head ${head + 1}` : "mean of the heads"}`;

  // Right-to-left words are isolated (U+2068, U+2069), so that the mark of their space is in front.
  const isolated = (piece) => (/[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]/.test(piece) ? `\u2068${piece}\u2069` : piece);

  const measure = document.createElement("canvas").getContext("2d");
  const widest = (tokens, font) => {
    measure.font = font;
    return tokens.reduce((width, { piece }) => Math.max(width, measure.measureText(piece).width), 0);
  };
  const FONT = "14px system-ui, sans-serif";
  const STEP = 24;
  const MOST_LINES = 4000;

  // Tokens on two sides, and lines between them whose width is the weight.
  const linesView = (map, { rows, columns }, choose) => {
    const box = make("div", { className: "scroll" });
    const sides = [rows, columns].map((tokens) => Math.min(190, widest(tokens, FONT)));
    const margin = 52, gap = 150;
    const [left, right] = [margin + sides[0], margin + sides[0] + gap];
    const size = { width: right + sides[1] + margin, height: 34 + STEP * Math.max(rows.length, columns.length) };
    const svg = draw("svg", { class: "lines", viewBox: `0 0 ${size.width} ${size.height}`, width: size.width, height: size.height, tabindex: 0, role: "application", "aria-label": "Lines between tokens. Arrow keys choose a token; left and right change sides." });
    const y = (index) => 40 + STEP * index;
    svg.append(draw("text", { x: left - 8, y: 16, "text-anchor": "end", class: "heading" }, "token"), draw("text", { x: right + 8, y: 16, class: "heading" }, "attends to"));
    let threshold = 0.01;
    const drawn = [];
    map.values.forEach((weight, index) => { if (weight >= threshold) drawn.push(index); });
    if (drawn.length > MOST_LINES) {
      drawn.sort((a, b) => map.values[b] - map.values[a]);
      threshold = map.values[drawn[MOST_LINES]];
      drawn.length = MOST_LINES;
    }
    drawn.sort((a, b) => map.values[a] - map.values[b]);
    const lines = drawn.map((index) => {
      const row = Math.floor(index / map.columns), column = index % map.columns;
      const line = draw("line", { x1: left, y1: y(row) - 5, x2: right, y2: y(column) - 5, "stroke-width": (0.3 + 9.7 * map.values[index]).toFixed(2), "stroke-opacity": (0.22 + 0.6 * map.values[index]).toFixed(2) });
      svg.append(line);
      return { row, column, line };
    });
    const side = (tokens, x, anchor, outside, of) => tokens.map(({ piece }, index) => {
      const text = draw("text", { x, y: y(index), "text-anchor": anchor }, isolated(piece));
      text.append(draw("title", {}, piece));
      const space = draw("rect", { x: anchor === "end" ? 0 : x - 8, y: y(index) - 17, width: (anchor === "end" ? x : size.width - x) + 8, height: STEP, fill: "transparent" });
      for (const node of [text, space]) {
        node.addEventListener("pointerenter", () => choose(...of(index)));
        node.addEventListener("pointerdown", () => choose(...of(index)));
      }
      const weight = draw("text", { x: outside, y: y(index) - 1, "text-anchor": anchor === "end" ? "start" : "end", class: "number" });
      svg.append(space, text, weight);
      return { text, weight };
    });
    const shown = [
      side(rows, left - 8, "end", 4, (index) => [index, null]),
      side(columns, right + 8, "start", size.width - 4, (index) => [null, index]),
    ];
    // Long words are cut where their side ends.
    shown.forEach((words, which) => words.forEach(({ text }, index) => {
      const { piece } = [rows, columns][which][index];
      measure.font = FONT;
      if (measure.measureText(piece).width <= 190) return;
      let length = piece.length;
      while (length > 1 && measure.measureText(`${piece.slice(0, length)}…`).width > 186) length--;
      text.firstChild.data = isolated(`${piece.slice(0, length)}…`);
    }));
    let at = [0, 0];
    svg.addEventListener("pointerleave", () => choose(null, null));
    svg.addEventListener("focus", () => { if (svg.matches(":focus-visible")) choose(...(at[0] === 0 ? [at[1], null] : [null, at[1]])); });
    svg.addEventListener("blur", () => choose(null, null));
    svg.addEventListener("keydown", (event) => {
      const lengths = [rows.length, columns.length];
      const [which, index] = at;
      if (event.key === "ArrowDown") at = [which, Math.min(lengths[which] - 1, index + 1)];
      else if (event.key === "ArrowUp") at = [which, Math.max(0, index - 1)];
      else if (event.key === "ArrowRight" || event.key === "ArrowLeft") at = [1 - which, Math.min(lengths[1 - which] - 1, index)];
      else if (event.key === "Home") at = [which, 0];
      else if (event.key === "End") at = [which, lengths[which] - 1];
      else return;
      event.preventDefault();
      choose(...(at[0] === 0 ? [at[1], null] : [null, at[1]]));
      shown[at[0]][at[1]].text.scrollIntoView({ block: "nearest", inline: "nearest" });
    });
    box.append(svg);
    const mark = (row, column) => {
      const isOn = (line) => (row === null || line.row === row) && (column === null || line.column === column);
      const isChosen = row !== null || column !== null;
      svg.classList.toggle("chosen", isChosen);
      for (const line of lines) line.line.classList.toggle("on", isChosen && isOn(line));
      const weight = (r, c) => (map.values[r * map.columns + c] >= 0.0005 ? map.values[r * map.columns + c].toFixed(3) : "");
      shown[0].forEach(({ text, weight: label }, index) => {
        text.classList.toggle("on", index === row);
        label.textContent = column !== null && (row === null || row === index) ? weight(index, column) : "";
      });
      shown[1].forEach(({ text, weight: label }, index) => {
        text.classList.toggle("on", index === column);
        label.textContent = row !== null && (column === null || column === index) ? weight(row, index) : "";
      });
    };
    const caption = make("figcaption", { textContent: `A line is as thick as its weight. Weights below ${threshold.toPrecision(2)} have no line.` });
    return { node: make("figure", {}, box, caption), mark, redraw() {}, draw() {} };
  };

  // The picture that the encoder reads. Cells are paler where the chosen token attends less, or where all tokens together do.
  const pictureView = (map, { rows, columns }, choose, { picture }) => {
    const [down, across] = picture.cells, first = picture.leading;
    const image = make("img", { src: picture.image });
    const canvas = make("canvas", { tabIndex: 0 });
    canvas.setAttribute("role", "application");
    canvas.setAttribute("aria-label", "The picture. Arrow keys choose a cell.");
    const isSelf = rows === columns;
    const of = (cell) => (isSelf ? [first + cell, null] : [null, first + cell]);
    const words = isSelf ? [] : rows.map(({ piece }, index) => {
      const word = make("button", { type: "button", textContent: isolated(piece) });
      for (const name of ["pointerenter", "focus"]) word.addEventListener(name, () => choose(index, null));
      word.addEventListener("pointerleave", () => choose(null, null));
      return word;
    });
    let chosen = [null, null], at = 0, size = [1, 1];
    const layout = () => {
      const width = Math.min(canvas.parentElement.clientWidth, Math.max(300, image.naturalWidth));
      size = [width, (width * image.naturalHeight) / Math.max(1, image.naturalWidth)];
    };
    const redraw = () => {
      const context = canvasOf(canvas, ...size);
      context.drawImage(image, 0, 0, ...size);
      const [row, column] = chosen;
      const shares = new Float32Array(down * across);
      for (let cell = 0; cell < shares.length; cell++) {
        for (let r = row ?? 0; r < (row === null ? map.rows : row + 1); r++) shares[cell] += map.values[r * map.columns + first + cell];
      }
      const most = shares.reduce((most, share) => Math.max(most, share), 1e-9);
      const sides = [size[0] / across, size[1] / down];
      const place = (cell) => [(cell % across) * sides[0], Math.floor(cell / across) * sides[1], ...sides];
      context.fillStyle = resolved("--panel");
      shares.forEach((share, cell) => {
        context.globalAlpha = 0.85 * (1 - share / most);
        context.fillRect(...place(cell));
      });
      context.globalAlpha = 1;
      const marked = isSelf ? row : column;
      if (marked !== null && marked >= first && marked - first < down * across) {
        context.strokeStyle = resolved("--accent");
        context.lineWidth = 2;
        context.strokeRect(...place(marked - first));
      }
      const largest = column === null ? 1 : Math.max(1e-9, ...rows.map((_, r) => map.values[r * map.columns + column]));
      words.forEach((word, r) => {
        word.classList.toggle("on", r === row);
        word.style.setProperty("--share", column === null ? 0 : map.values[r * map.columns + column] / largest);
      });
    };
    const over = (event) => {
      const box = canvas.getBoundingClientRect();
      const [x, y] = [Math.floor(((event.clientX - box.left) * across) / size[0]), Math.floor(((event.clientY - box.top) * down) / size[1])];
      if (x >= 0 && x < across && y >= 0 && y < down) choose(...of((at = y * across + x)));
    };
    canvas.addEventListener("pointermove", over);
    canvas.addEventListener("pointerdown", over);
    canvas.addEventListener("pointerleave", () => choose(null, null));
    canvas.addEventListener("focus", () => { if (canvas.matches(":focus-visible")) choose(...of(at)); });
    canvas.addEventListener("blur", () => choose(null, null));
    canvas.addEventListener("keydown", (event) => {
      const step = { ArrowUp: -across, ArrowDown: across, ArrowLeft: -1, ArrowRight: 1, Home: -at, End: down * across - 1 - at }[event.key];
      if (step === undefined) return;
      event.preventDefault();
      if (at + step >= 0 && at + step < down * across) at += step;
      choose(...of(at));
    });
    image.addEventListener("load", () => { if (canvas.isConnected) { layout(); redraw(); } });
    const caption = make("figcaption", { textContent: "Cells are paler where the token attends less; without one, where all tokens do." });
    return {
      node: make("figure", {}, make("div", { className: "words" }, ...words), make("div", {}, canvas), caption),
      mark: (row, column) => { chosen = [row, column]; redraw(); },
      draw: () => { layout(); redraw(); },
    };
  };

  // A cell for each pair of tokens. Only visible cells are drawn.
  const mapView = (map, { rows, columns }, choose, { most, all }) => {
    const box = make("div", { className: "scroll" });
    const canvas = make("canvas", { tabIndex: 0 });
    canvas.setAttribute("role", "application");
    canvas.setAttribute("aria-label", "Heat map: rows attend to columns. Arrow keys choose a cell.");
    const space = make("div", { className: "space" }, canvas);
    box.append(space);
    const small = "13px system-ui, sans-serif";
    const gutter = { left: Math.min(150, widest(all.rows, small)) + 14, top: Math.min(120, widest(all.columns, small)) * 0.87 + 22 };
    let cell = 20, chosen = [null, null], at = [0, 0];
    const fitted = (context, text, width) => {
      if (context.measureText(text).width <= width) return isolated(text);
      let length = text.length;
      while (length > 1 && context.measureText(`${text.slice(0, length)}…`).width > width) length--;
      return isolated(`${text.slice(0, length)}…`);
    };
    const layout = () => {
      const width = box.parentElement.clientWidth - 2;
      // Room for the last column's slanted word.
      const tail = Math.min(70, gutter.top * 0.6);
      cell = Math.max(16, Math.min(38, Math.floor((width - gutter.left - tail) / all.most)));
      const whole = [gutter.left + cell * map.columns + tail, gutter.top + cell * map.rows + 6];
      space.style.width = `${whole[0]}px`;
      space.style.height = `${whole[1]}px`;
      box.style.maxWidth = `${whole[0] + 2}px`;
    };
    const redraw = () => {
      const [width, height] = [Math.min(box.clientWidth, space.clientWidth), Math.min(box.clientHeight, space.clientHeight)];
      const context = canvasOf(canvas, width, height);
      const ink = resolved("--ink"), soft = resolved("--soft"), accent = resolved("--accent"), panel = resolved("--panel");
      const [x0, y0] = [gutter.left - box.scrollLeft, gutter.top - box.scrollTop];
      const first = [Math.max(0, Math.floor(box.scrollTop / cell)), Math.max(0, Math.floor(box.scrollLeft / cell))];
      const end = [Math.min(map.rows, Math.ceil((box.scrollTop + height) / cell)), Math.min(map.columns, Math.ceil((box.scrollLeft + width) / cell))];
      context.save();
      context.beginPath();
      context.rect(gutter.left, gutter.top, width, height);
      context.clip();
      context.textAlign = "center";
      context.textBaseline = "middle";
      context.font = `${Math.floor(cell * 0.4)}px system-ui, sans-serif`;
      for (let row = first[0]; row < end[0]; row++) {
        for (let column = first[1]; column < end[1]; column++) {
          const weight = map.values[row * map.columns + column], share = weight / most;
          context.fillStyle = `rgb(${colour(share)})`;
          context.fillRect(x0 + column * cell, y0 + row * cell, cell - 1, cell - 1);
          if (cell >= 26 && weight >= 0.005) {
            context.fillStyle = luminance(colour(share)) < 0.179 ? "#ffffff" : "#000000";
            context.fillText(weight >= 0.995 ? "1.0" : weight.toFixed(2).slice(1), x0 + (column + 0.5) * cell, y0 + (row + 0.5) * cell);
          }
        }
      }
      const [row, column] = chosen;
      if (row !== null || column !== null) {
        context.strokeStyle = accent;
        context.lineWidth = 2;
        const across = [row === null ? 0 : row, row === null ? map.rows : 1], down = [column === null ? 0 : column, column === null ? map.columns : 1];
        context.strokeRect(x0 + down[0] * cell - 0.5, y0 + across[0] * cell - 0.5, down[1] * cell, across[1] * cell);
      }
      context.restore();
      // Words stay in sight.
      context.fillStyle = panel;
      context.fillRect(0, 0, width, gutter.top);
      context.fillRect(0, 0, gutter.left, height);
      const word = (text, isOn, width) => {
        context.font = isOn ? `700 ${small}` : small;
        context.fillStyle = isOn ? accent : ink;
        return fitted(context, text, width);
      };
      context.save();
      context.beginPath();
      context.rect(0, gutter.top, gutter.left, height);
      context.clip();
      context.textAlign = "right";
      context.textBaseline = "middle";
      for (let index = first[0]; index < end[0]; index++) {
        context.fillText(word(rows[index].piece, index === row, 150), gutter.left - 7, y0 + (index + 0.5) * cell);
      }
      context.restore();
      context.textAlign = "left";
      context.save();
      context.beginPath();
      context.rect(gutter.left - 4, 0, width, gutter.top);
      context.clip();
      for (let index = first[1]; index < end[1]; index++) {
        context.save();
        context.translate(x0 + (index + 0.5) * cell + 3, gutter.top - 7);
        context.rotate(-Math.PI / 3);
        context.fillText(word(columns[index].piece, index === column, 120), 0, 0);
        context.restore();
      }
      context.restore();
      context.fillStyle = soft;
    };
    const cellAt = (event) => {
      const place = canvas.getBoundingClientRect();
      const column = Math.floor((event.clientX - place.left - gutter.left + box.scrollLeft) / cell);
      const row = Math.floor((event.clientY - place.top - gutter.top + box.scrollTop) / cell);
      const isAbove = event.clientY - place.top < gutter.top, isLeft = event.clientX - place.left < gutter.left;
      const [inRows, inColumns] = [row >= 0 && row < map.rows && !isAbove, column >= 0 && column < map.columns && !isLeft];
      if (isLeft && inRows) return [row, null];
      if (isAbove && inColumns) return [null, column];
      return inRows && inColumns ? [row, column] : [null, null];
    };
    const over = (event) => {
      const found = cellAt(event);
      if (found[0] !== chosen[0] || found[1] !== chosen[1]) choose(...found);
    };
    canvas.addEventListener("pointermove", over);
    canvas.addEventListener("pointerdown", over);
    canvas.addEventListener("pointerleave", () => choose(null, null));
    canvas.addEventListener("focus", () => { if (canvas.matches(":focus-visible")) choose(...at); });
    canvas.addEventListener("blur", () => choose(null, null));
    canvas.addEventListener("keydown", (event) => {
      const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1], PageUp: [-10, 0], PageDown: [10, 0], Home: [0, -map.columns], End: [0, map.columns] };
      const step = steps[event.key];
      if (!step) return;
      event.preventDefault();
      at = [Math.max(0, Math.min(map.rows - 1, at[0] + step[0])), Math.max(0, Math.min(map.columns - 1, at[1] + step[1]))];
      const seen = [box.clientHeight - gutter.top, box.clientWidth - gutter.left];
      const kept = (scroll, index, room) => Math.max(Math.min(scroll, index * cell), (index + 1) * cell - room);
      box.scrollTop = kept(box.scrollTop, at[0], seen[0]);
      box.scrollLeft = kept(box.scrollLeft, at[1], seen[1]);
      choose(...at);
    });
    box.addEventListener("scroll", redraw);
    const legend = make("canvas");
    const drawLegend = () => {
      const context = canvasOf(legend, 120, 10);
      for (let x = 0; x < 120; x++) {
        context.fillStyle = `rgb(${colour(x / 119)})`;
        context.fillRect(x, 0, 1, 10);
      }
    };
    const caption = make("figcaption", {}, "Rows attend to columns. ", make("span", { className: "legend" }, "0", legend, most.toFixed(3)));
    return {
      node: make("figure", {}, box, caption),
      mark: (row, column) => { chosen = [row, column]; if (row !== null && column !== null) at = chosen; redraw(); },
      draw: () => { layout(); redraw(); drawLegend(); },
      cell: (row, column) => {
        const place = canvas.getBoundingClientRect();
        return [place.left + gutter.left - box.scrollLeft + (column + 0.5) * cell, place.top + gutter.top - box.scrollTop + (row + 0.5) * cell];
      },
    };
  };

  const quoted = (token) => `“${isolated(token.piece)}”`;
  // The text of a choice.
  const described = (map, { rows, columns }, row, column) => {
    const weight = (r, c) => map.values[r * map.columns + c];
    const figure = (r, c) => (weight(r, c) === 0 && map.least ? `below ${map.least[r].toFixed(4)}` : weight(r, c).toFixed(4));
    if (row !== null && column !== null) return `${quoted(rows[row])} (${row + 1}) → ${quoted(columns[column])} (${column + 1}): ${figure(row, column)}`;
    const best = (length, of) => [...Array(length).keys()].sort((a, b) => of(b) - of(a)).slice(0, 5).filter((index) => of(index) > 0);
    if (row !== null) return `${quoted(rows[row])} attends to ${best(columns.length, (c) => weight(row, c)).map((c) => `${quoted(columns[c])} ${figure(row, c)}`).join(", ")}`;
    if (column !== null) return `${quoted(columns[column])} is attended to by ${best(rows.length, (r) => weight(r, column)).map((r) => `${quoted(rows[r])} ${figure(r, column)}`).join(", ")}`;
    return "Point at a token or a cell, or choose one with the keyboard, to read its weights.";
  };

  const show = () => {
    markKind(known.indexOf(state.kind));
    markPicture(PICTURES.indexOf(state.picture));
    pictureButtons[0].textContent = data.examples[0].source.picture && state.kind !== 1 ? "Picture" : "Lines";
    markHead(state.layer * (sizes(state.kind)[1] + 1) + state.head);
    byId("title").textContent = `${KINDS[state.kind].name.replace("self", "self-attention").replace(/^Cross$/, "Cross-attention")}, ${named(state.layer, state.head)}`;
    const kept = data.examples.map((example) => example[KINDS[state.kind].key].kept).filter((kept) => kept !== null);
    byId("meaning").textContent = KINDS[state.kind].meaning + (kept.length ? ` The text is long: this page has the ${Math.min(...kept)} largest weights of each row.` : "");
    const maps = data.examples.map((example) => read(example, state.kind, state.layer, state.head));
    // Sentences side by side share one scale, and their rows one height.
    const sides = data.examples.map((example) => words(example, state.kind));
    const frame = {
      most: maps.reduce((most, map) => map.values.reduce((most, weight) => Math.max(most, weight), most), 1e-9),
      all: { rows: sides.flatMap(({ rows }) => rows), columns: sides.flatMap(({ columns }) => columns), most: Math.max(...maps.map((map) => map.columns)) },
    };
    views = data.examples.map((example, index) => {
      const map = maps[index];
      const both = sides[index];
      const choose = (row, column) => chooseIn(index, row, column);
      const { picture } = example.source;
      const firstView = picture && state.kind !== 1 ? pictureView : linesView;
      const parts = { lines: [firstView], map: [mapView], both: [firstView, mapView] }[state.picture].map((view) => view(map, both, choose, { ...frame, picture }));
      const readout = make("p", { className: "readout", id: `readout-${index}`, ariaLive: "polite", textContent: described(map, both, null, null) });
      const node = make("article", { className: "example" },
        make("h3", {}, make("bdi", { textContent: example.source.text })),
        make("p", { className: "target" }, make("bdi", { textContent: example.target.text })),
        readout,
        make("div", { className: "both" }, ...parts.map((part) => part.node)));
      return { map, both, parts, readout, node };
    });
    byId("examples").replaceChildren(...views.map((view) => view.node));
    views.forEach((view) => view.parts.forEach((part) => part.draw()));
  };

  // The same word is marked in the other sentence, if it has it.
  const chooseIn = (index, row, column) => {
    const { both } = views[index];
    const same = (tokens, token) => {
      const found = token === null ? -1 : tokens.findIndex(({ piece }) => piece === token.piece);
      return found < 0 ? null : found;
    };
    views.forEach((view, other) => {
      const chosen = other === index ? [row, column] : [same(view.both.rows, row === null ? null : both.rows[row]), same(view.both.columns, column === null ? null : both.columns[column])];
      const isHalf = other !== index && ((row !== null && chosen[0] === null) || (column !== null && chosen[1] === null));
      const [markedRow, markedColumn] = isHalf ? [null, null] : chosen;
      view.parts.forEach((part) => part.mark(markedRow, markedColumn));
      view.readout.textContent = described(view.map, view.both, markedRow, markedColumn);
    });
  };

  const redrawAll = () => { showHeads(); show(); };
  const THEMES = [["", "as the system"], ["light", "light"], ["dark", "dark"]];
  let theme = 0;
  byId("theme").addEventListener("click", () => {
    theme = (theme + 1) % THEMES.length;
    const [value, name] = THEMES[theme];
    if (value) document.documentElement.dataset.theme = value;
    else delete document.documentElement.dataset.theme;
    byId("theme").textContent = `Theme: ${name}`;
    redrawAll();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawAll);
  let resizing = 0;
  addEventListener("resize", () => {
    clearTimeout(resizing);
    resizing = setTimeout(() => views.forEach((view) => view.parts.forEach((part) => part.draw())), 100);
  });
  byId("from").textContent = `${data.model}, on ${data.engine}`;
  redrawAll();
  stepByStep(data, byId("steps"), { make, draw, isolated });
  // For programs that look at the page: the weights it shows, and where it shows them.
  window.cognate = {
    data,
    weights: (example, kind, layer, head) => Array.from(read(data.examples[example], kind, layer, head).values),
    cell: (example, row, column) => views[example].parts.find((part) => part.cell).cell(row, column),
  };
})();
