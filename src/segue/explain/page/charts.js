// Line charts over distances, drawn as SVG.
const COLOURS = ['#e8590c', '#1c7ed6', '#2f9e44', '#9c36b5', '#f08c00', '#0c8599', '#868e96'];

function svg(tag, properties, ...children) {
  const made = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(properties)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

function lineChart({ edges, lines, title, axis, from = 0 }) {
  const [width, height, left, bottom] = [620, 220, 48, 34];
  const places = edges.slice(0, -1).map((edge, n) => Math.log2(1 + (edge + edges[n + 1] - 1) / 2));
  const values = lines.flatMap((line) => line.values.filter((value, n) => value !== null && n >= from));
  const low = Math.min(0, ...values);
  const high = Math.max(0, ...values, 1e-9);
  const last = Math.max(...places, 1);
  const x = (place) => left + (place / last) * (width - left - 12);
  const y = (value) => 10 + ((high - value) / (high - low || 1)) * (height - bottom - 14);
  const drawn = svg('svg', { viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': title });
  for (const value of [low, (low + high) / 2, high]) {
    drawn.append(svg('line', { class: 'axis', x1: left, x2: width - 12, y1: y(value), y2: y(value) }), svg('text', { x: left - 6, y: y(value) + 4, 'text-anchor': 'end' }, Math.abs(value) < 0.001 && value ? value.toExponential(0) : digits(value, Math.abs(high - low) < 0.1 ? 3 : 2)));
  }
  for (let distance = 1; distance < edges[edges.length - 1]; distance *= 4) {
    drawn.append(svg('text', { x: x(Math.log2(1 + distance)), y: height - 18, 'text-anchor': 'middle' }, String(distance)));
  }
  drawn.append(svg('text', { x: width - 12, y: height - 3, 'text-anchor': 'end' }, axis));
  lines.forEach((line, number) => {
    let path = '';
    line.values.forEach((value, n) => { if (value !== null && n >= from) path += `${path && line.values[n - 1] !== null ? 'L' : 'M'}${x(places[n]).toFixed(1)} ${y(value).toFixed(1)}`; });
    drawn.append(svg('path', { class: 'line', d: path || 'M0 0', stroke: COLOURS[number % COLOURS.length] }));
  });
  const legend = lines.length > 1 ? element('div', { class: 'legend' }, ...lines.map((line, number) => element('span', {}, element('i', { style: `background:${COLOURS[number % COLOURS.length]}` }), line.name))) : null;
  return element('div', {}, element('h3', {}, title), drawn, legend);
}

function table(header, rows, { numbers = [], current = -1 } = {}) {
  const kind = (n) => (numbers.includes(n) ? 'number' : '');
  return element('div', { class: 'wide' }, element('table', {},
    element('thead', {}, element('tr', {}, ...header.map((cell, n) => element('th', { class: kind(n), scope: 'col' }, cell)))),
    element('tbody', {}, ...rows.map((row, number) => element('tr', { 'aria-current': number === current ? 'true' : null }, ...row.map((cell, n) => (cell instanceof Element ? cell : element('td', { class: kind(n) }, String(cell)))))))));
}

function heatCell(value, most, count = 4) {
  return element('td', { class: `number heat ${value < 0 ? 'cold' : ''}`, style: `--heat:${Math.round((60 * Math.abs(value)) / (most || 1))}%` }, digits(value, count));
}
