// The attention map of a head on a canvas. First each cell shows one sampled pair; then, strip by strip, the maximum of all its pairs.
const CELLS = 220;
const STRIP_MS = 24;

class HeatMap {
  constructor(canvas, note, onPoint) {
    this.canvas = canvas;
    this.note = note;
    this.onPoint = onPoint;
    this.window = null;
    this.run = 0;
    canvas.tabIndex = 0;
    canvas.addEventListener('pointermove', (event) => this.point(event));
    canvas.addEventListener('pointerdown', (event) => { this.drag = this.at(event); canvas.setPointerCapture(event.pointerId); });
    canvas.addEventListener('pointerup', (event) => this.zoomTo(this.at(event)));
    canvas.addEventListener('dblclick', () => this.whole());
    canvas.addEventListener('keydown', (event) => this.key(event));
  }

  show(head, term) {
    const length = head.segmentOf.length;
    const moved = this.head?.segmentOf.length !== length;
    this.head = head;
    this.term = term;
    if (!this.window || moved) this.window = { q: 0, k: 0, size: length };
    this.draw();
  }

  whole() { this.window = { q: 0, k: 0, size: this.head.segmentOf.length }; this.draw(); }

  at(event) {
    const box = this.canvas.getBoundingClientRect();
    const { q, k, size } = this.window;
    const inside = (value) => Math.min(0.999999, Math.max(0, value));
    return { q: Math.floor(q + inside((event.clientY - box.top) / box.height) * size), k: Math.floor(k + inside((event.clientX - box.left) / box.width) * size) };
  }

  point(event) {
    if (this.drag) return;
    const { q, k } = this.at(event);
    this.onPoint(Math.min(q, this.head.segmentOf.length - 1), Math.min(k, this.head.segmentOf.length - 1));
  }

  zoomTo(end) {
    const start = this.drag;
    this.drag = null;
    const size = start ? Math.max(Math.abs(end.q - start.q), Math.abs(end.k - start.k)) + 1 : 0;
    if (size < 4) return;
    this.move(Math.min(start.q, end.q), Math.min(start.k, end.k), size);
  }

  move(q, k, size) {
    const length = this.head.segmentOf.length;
    const fitting = Math.min(length, Math.max(Math.min(8, length), Math.round(size)));
    const within = (value) => Math.max(0, Math.min(length - fitting, Math.round(value)));
    this.window = { q: within(q), k: within(k), size: fitting };
    this.draw();
  }

  key(event) {
    const { q, k, size } = this.window;
    const step = Math.max(1, Math.round(size / 8));
    const moves = { ArrowUp: [q - step, k, size], ArrowDown: [q + step, k, size], ArrowLeft: [q, k - step, size], ArrowRight: [q, k + step, size], '+': [q + size / 4, k + size / 4, size / 2], '=': [q + size / 4, k + size / 4, size / 2], '-': [q - size / 2, k - size / 2, size * 2], 0: [0, 0, Infinity] };
    if (!(event.key in moves)) return;
    event.preventDefault();
    this.move(...moves[event.key]);
  }

  draw() {
    const run = (this.run += 1);
    const { size } = this.window;
    const cells = Math.min(size, CELLS);
    const values = new Float32Array(cells * cells);
    this.fill(values, cells, 0, cells, true);
    this.paint(values, cells);
    if (cells === size) { this.note.textContent = ''; return; }
    this.note.textContent = say('sampled');
    let row = 0;
    const go = () => {
      if (run !== this.run || !this.canvas.isConnected) return;
      const begin = performance.now();
      while (row < cells && performance.now() - begin < STRIP_MS) { this.fill(values, cells, row, row + 1, false); row += 1; }
      this.paint(values, cells);
      if (row < cells) setTimeout(go, 0);
      else this.note.textContent = '';
    };
    setTimeout(go, 0);
  }

  // Rows of cells: one pair for each cell, or the largest of all its pairs, by magnitude.
  fill(values, cells, from, until, sampled) {
    const { q, k, size } = this.window;
    const edge = (start, cell) => start + Math.floor((cell * size) / cells);
    const further = this.term === 'probability' ? (a, b) => a > b : (a, b) => Math.abs(a) > Math.abs(b);
    for (let row = from; row < until; row += 1) {
      const lastQ = sampled ? edge(q, row) + 1 : edge(q, row + 1);
      for (let column = 0; column < cells; column += 1) {
        const lastK = sampled ? edge(k, column) + 1 : edge(k, column + 1);
        let best = NaN;
        for (let i = edge(q, row); i < lastQ; i += 1) {
          for (let j = edge(k, column); j < lastK; j += 1) {
            if (!this.head.sees(i, j)) continue;
            const value = this.head.value(this.term, i, j);
            if (Number.isNaN(best) || further(value, best)) best = value;
          }
        }
        values[row * cells + column] = best;
      }
    }
  }

  paint(values, cells) {
    const dark = matchMedia('(prefers-color-scheme: dark)').matches ? document.documentElement.dataset.theme !== 'light' : document.documentElement.dataset.theme === 'dark';
    const [back, hot, cold] = dark ? [[27, 30, 36], [255, 154, 92], [106, 184, 255]] : [[255, 255, 255], [190, 60, 10], [20, 100, 190]];
    let most = 1e-9;
    for (const value of values) if (Math.abs(value) > most) most = Math.abs(value);
    const image = new ImageData(cells, cells);
    for (let n = 0; n < values.length; n += 1) {
      const seen = !Number.isNaN(values[n]);
      const part = seen ? Math.abs(values[n]) / most : 0;
      const share = this.term === 'probability' ? Math.sqrt(part) : part;
      const colour = values[n] < 0 ? cold : hot;
      for (let c = 0; c < 3; c += 1) image.data[4 * n + c] = back[c] + (colour[c] - back[c]) * share;
      image.data[4 * n + 3] = seen ? 255 : 0;
    }
    const small = document.createElement('canvas');
    small.width = small.height = cells;
    small.getContext('2d').putImageData(image, 0, 0);
    const side = (this.canvas.width = this.canvas.height = 880);
    const pen = this.canvas.getContext('2d');
    pen.imageSmoothingEnabled = false;
    pen.drawImage(small, 0, 0, side, side);
    pen.strokeStyle = dark ? '#8ea4ff' : '#3b5bdb';
    pen.lineWidth = 1.5;
    const { q, k, size } = this.window;
    for (const segment of this.head.maps.segments) {
      const x = ((segment.new - k) / size) * side;
      const [top, bottom] = [((segment.new - q) / size) * side, ((segment.stop - q) / size) * side];
      if (segment.new > 0) { pen.beginPath(); pen.moveTo(x, top); pen.lineTo(x, bottom); pen.stroke(); }
    }
    if (!performance.getEntriesByName('first map').length) performance.mark('first map');
    this.canvas.dataset.drawn = String(this.run);
    this.canvas.dataset.most = String(most);
  }
}
