// Views of a language model: the attention map, the terms of the scores, and the loss without each term.
function facts(side) {
  const parts = [`${say('objective')}: ${side.objective}`, `${say('positions')}: ${side.positions}`, `${say('tokens')}: ${side.tokens.length}`];
  if (side.loss !== null) parts.push(`${say('loss')}: ${digits(side.loss, 4)} ${say('per_token')}`);
  return element('p', { class: 'hint' }, parts.join(' · '));
}

const visible = (token) => token.replaceAll('▁', ' ').replaceAll('\n', '¶') || ' ';

function tokenList(side, tokens, { onPoint, still = false, borders = new Set() }) {
  const list = element('div', { class: 'tokens', role: still ? 'list' : 'listbox', 'aria-label': say('tokens') });
  tokens.forEach((token, n) => {
    if (borders.has(n)) list.append(element('span', { class: 'border', 'aria-hidden': 'true' }, '│'));
    list.append(element('span', { class: `token ${still ? 'still' : ''}`, role: still ? 'listitem' : 'option', tabindex: still || n ? -1 : 0, 'data-n': n }, visible(token)));
  });
  if (still) return list;
  const of = (event) => { const found = event.target.closest('.token'); return found ? Number(found.dataset.n) : null; };
  list.addEventListener('pointerover', (event) => { const n = of(event); if (n !== null) onPoint(n); });
  list.addEventListener('focusin', (event) => { const n = of(event); if (n !== null) onPoint(n); });
  list.addEventListener('keydown', (event) => {
    const n = of(event);
    const to = { ArrowLeft: n - 1, ArrowRight: n + 1, Home: 0, End: tokens.length - 1 }[event.key];
    const next = list.querySelector(`[data-n="${to}"]`);
    if (n === null || !next) return;
    event.preventDefault();
    list.querySelector(`[data-n="${n}"]`).tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  });
  return list;
}

function attentionView(number, state) {
  const side = SIDES[number];
  const canvas = element('canvas', { 'aria-label': `${say('map_of')}: ${side.name}`, role: 'img' });
  const note = element('span', { class: 'hint' });
  const reading = element('div', { class: 'reading', 'aria-live': 'polite' });
  const inside = (choices, wanted) => (choices.includes(wanted) ? wanted : choices[0]);
  const layer = inside(side.maps.layers, state.layer);
  const chosen = Math.min(state.head, side.maps.heads - 1);
  const stream = inside(side.maps.streams, state.stream);
  const term = inside(['probability', 'score', ...side.maps.terms], state.term);
  const head = headOf(number, layer, chosen, stream);
  const borders = new Set(side.maps.segments.map((segment) => segment.new).filter((start) => start > 0));
  let current = null;
  const spans = () => list.querySelectorAll('.token');
  const point = (q, k = null) => {
    if (q !== current) {
      const row = head.row(term, q);
      let most = 1e-9;
      for (const value of row) if (Math.abs(value) > most) most = Math.abs(value);
      spans().forEach((span, n) => {
        const value = row[n];
        span.style.setProperty('--heat', Number.isNaN(value) ? '0%' : `${Math.round((85 * Math.abs(value)) / most)}%`);
        span.classList.toggle('cold', value < 0);
        if (n === q) span.setAttribute('aria-current', 'true');
        else if (n === current) span.removeAttribute('aria-current');
      });
      current = q;
    }
    const text = [`${say('from')} ${q} “${visible(side.tokens[q]).trim()}”`];
    if (side.losses[q] !== null) text.push(`−log p ${digits(side.losses[q], 2)}`);
    if (k !== null) {
      text.push(`${say('to')} ${k} “${visible(side.tokens[k]).trim()}”`, `${say('distance')} ${q - k}`);
      if (!head.sees(q, k)) text.push(say('hidden'));
      else {
        if (k < side.maps.segments[head.segmentOf[q]].start) text.push(say('in_memory'));
        text.push(`p ${digits(head.value('probability', q, k), 4)}`);
        for (const name of side.maps.terms) text.push(`${say(name)} ${digits(head.value(name, q, k))}`);
      }
    }
    reading.textContent = text.join(' · ');
  };
  const list = tokenList(side, side.tokens, { onPoint: point, borders });
  const map = new HeatMap(canvas, note, point);
  const card = element('section', { class: 'card' }, element('h2', {}, side.name), facts(side),
    element('div', { class: 'map' }, canvas), element('div', { class: 'controls' }, element('button', { type: 'button', onclick: () => map.whole() }, say('reset')), note), reading, list);
  requestAnimationFrame(() => map.show(head, term));
  return card;
}

function termsView(number, state) {
  const side = SIDES[number];
  const found = side.statistics[state.stream] ?? side.statistics.content;
  const layer = Math.min(state.layer, found.share.length - 1);
  const head = Math.min(state.head, found.share[0].length - 1);
  const rows = found.share.flatMap((heads, l) => heads.map((shares, h) => [l, h, ...shares.map((share) => heatCell(share, 1, 3)), element('td', { class: 'number' }, digits(found.memory[l][h], 3))]));
  const lines = found.terms.map((name, n) => ({ name: say(name), values: found.profile[layer][head][n] }));
  const card = element('section', { class: 'card' }, element('h2', {}, side.name), facts(side),
    lineChart({ edges: found.edges, lines, title: say('profile'), axis: say('distance_axis') }),
    lineChart({ edges: found.edges, lines: [{ name: '', values: found.probability[layer][head] }], title: say('probability_by_distance') + (found.right[layer][head] > 0 ? ` (${say('right')}: ${digits(found.right[layer][head], 3)})` : ''), axis: say('distance_axis') }),
    found.memory.flat().some((share) => share > 0)
      ? lineChart({ edges: found.edges, lines: [{ name: '', values: found.age[layer][head] }], title: `${say('age')}: ${digits(100 * found.memory[layer][head], 1)} % ${say('memory_share')}`, axis: say('age_axis'), from: 1 })
      : element('p', { class: 'hint' }, say('no_memory')),
    element('h3', {}, say('share')), element('p', { class: 'hint' }, say('share_hint')),
    table([say('layer'), say('head'), ...found.terms.map(say), say('memory')], rows, { numbers: found.terms.map((_, n) => n + 2).concat(found.terms.length + 2), current: layer * found.share[0].length + head }));
  return card;
}

function lossesView(number) {
  const side = SIDES[number];
  const whole = side.changes.filter((one) => one.layer === null);
  const single = side.changes.filter((one) => one.layer !== null);
  const most = Math.max(...side.changes.map((one) => Math.abs(one.change)), 1e-9);
  const name = (one) => (one.memory ? say('memory') : say(one.term));
  const counts = [1 + Math.max(-1, ...single.map((one) => one.layer)), 1 + Math.max(-1, ...single.map((one) => one.head))];
  const grid = Array.from({ length: counts[0] }, (_, layer) => [layer, ...Array.from({ length: counts[1] }, (__, head) => heatCell(single.find((one) => one.layer === layer && one.head === head).change, most))]);
  if (!side.changes.length) return element('section', { class: 'card' }, element('h2', {}, side.name), facts(side), element('p', { class: 'hint' }, say('no_changes')));
  return element('section', { class: 'card' }, element('h2', {}, side.name), facts(side), element('p', { class: 'hint' }, say('losses_hint')),
    table([say('without'), say('change')], whole.map((one) => [`${name(one)} ${say('everywhere')}`, heatCell(one.change, most)]), { numbers: [1] }),
    element('h3', {}, say('heads_table')),
    table([say('layer'), ...Array.from({ length: counts[1] }, (_, head) => `${say('head')} ${head}`)], grid, { numbers: Array.from({ length: counts[1] }, (_, n) => n + 1) }));
}
