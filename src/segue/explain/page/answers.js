// The words behind an answer, and a factorisation order step by step.
function wordsView(number, state) {
  const side = SIDES[number];
  const found = side.words;
  const method = found.methods.find((one) => one.method === state.method) ?? found.methods[0];
  const most = Math.max(...method.values.map(Math.abs), 1e-9);
  const named = (name) => (name === 'attention' ? say('attention_method') : say(name));
  const chooser = element('select', { 'aria-label': say('method'), id: `method-${number}`, onchange: (event) => { state.method = event.target.value; refresh(); } },
    ...found.methods.map((one) => element('option', { value: one.method, selected: one === method }, named(one.method))));
  const several = new Set(found.units.map((unit) => unit.document)).size > 1;
  const list = element('div', { class: 'tokens words', role: 'list' });
  let before = null;
  found.units.forEach((unit, n) => {
    if (several && unit.document !== before) list.append(element('h3', {}, `${say('document')} ${unit.document + 1}`));
    before = unit.document;
    const value = method.values[n];
    list.append(element('span', { class: `token still ${value < 0 ? 'cold' : ''}`, role: 'listitem', title: digits(value, 4), style: `--heat:${Math.round((85 * Math.abs(value)) / most)}%` }, unit.text.trim()), ' ');
  });
  const order = method.values.map((value, n) => [value, n]).sort((a, b) => Math.abs(b[0]) - Math.abs(a[0])).slice(0, 12);
  const sure = `${say(found.probability ? 'value_probability' : 'value_score')} ${digits(found.value, 4)}`;
  return element('section', { class: 'card' }, element('h2', {}, side.name),
    element('p', {}, `${say('task')}: ${found.task} · ${say('answer')}: `, element('b', {}, found.whole ?? found.answer), found.whole === null ? ` · ${sure}` : ''),
    found.whole === null ? null : element('p', { class: 'hint' }, say('whole').replace('{answer}', found.answer).replace('{sure}', sure)),
    element('div', { class: 'controls' }, element('label', {}, say('method'), chooser)),
    element('p', { class: 'hint' }, `${say('words_hint')} ${found.baseline}`), list,
    method.gap === null ? null : element('p', { class: 'hint' }, `${say('gap')}: ${digits(method.gap, 5)}`),
    table(['', ''], order.map(([value, n]) => [found.units[n].text.trim(), heatCell(value, most)]), { numbers: [1] }),
    element('h3', {}, `${say('comprehensiveness')}, ${say('sufficiency')}`),
    table([say('method'), say('comprehensiveness'), say('sufficiency')], found.faithfulness.map((one) => [named(one.method), digits(one.comprehensiveness, 4), digits(one.sufficiency, 4)]), { numbers: [1, 2] }),
    element('p', { class: 'hint' }, say('faithful_hint')));
}

function seenGrid(values, now) {
  const grid = element('div', { class: 'grid', style: `grid-template-columns: repeat(${values.length}, 13px)`, role: 'img' });
  values.forEach((row, q) => row.forEach((sees, k) => grid.append(element('span', { class: `${sees ? 'yes' : ''} ${q === now ? 'now' : ''}` }))));
  return grid;
}

function orderView(number, state) {
  const side = SIDES[number];
  const found = side.order;
  const count = found.tokens.length;
  const step = Math.min(state.step, count);
  const now = step < count ? found.order[step] : -1;
  const revealed = new Set(found.order.slice(0, step));
  const go = (to) => { state.step = Math.max(0, Math.min(count, to)); refresh(); document.getElementById(`step-${number}`)?.focus(); };
  const slider = element('input', { type: 'range', id: `step-${number}`, min: 0, max: count, value: step, 'aria-label': say('step'), oninput: (event) => go(Number(event.target.value)) });
  const sum = (values) => values.reduce((a, b) => a + b, 0);
  const text = element('div', { class: 'tokens', role: 'list' }, ...found.tokens.map((token, n) => element('span', { class: 'token still', role: 'listitem', 'aria-current': n === now ? 'true' : null, style: `--heat:${revealed.has(n) ? 45 : 0}%` }, revealed.has(n) ? visible(token) : ' ____ ')));
  const rows = found.tokens.map((token, n) => [visible(token).trim(), found.order.indexOf(n) + 1, revealed.has(n) ? say('revealed') : digits(found.steps[step][n], 2), revealed.has(n) ? '' : visible(found.likeliest[step][n]).trim(), digits(found.one[n], 2), digits(found.mean[n], 2), digits(found.spread[n], 2)]);
  rows.push([say('sum'), '', '', '', digits(sum(found.one), 2), digits(sum(found.mean), 2), '']);
  return element('section', { class: 'card' }, element('h2', {}, side.name), element('p', { class: 'hint' }, say('order_hint')),
    element('div', { class: 'controls' }, element('button', { type: 'button', onclick: () => go(step - 1) }, say('previous')), slider, element('button', { type: 'button', onclick: () => go(step + 1) }, say('next')),
      element('span', {}, language === 'zh' ? `第 ${step} 步，共 ${count} 步` : `${say('step')} ${step} ${say('of')} ${count}`)),
    text, element('p', { class: 'hint' }, `${found.before} ${say('before')} · ${found.orders} ${say('orders')}`),
    table([say('token'), '#', say('now'), say('likeliest'), say('its_turn'), say('mean_orders'), say('spread')], rows, { numbers: [1, 2, 4, 5, 6], current: now }),
    element('h3', {}, say('content_sees')), element('div', { class: 'wide' }, seenGrid(found.content, now)),
    element('h3', {}, say('query_sees')), element('div', { class: 'wide' }, seenGrid(found.query, now)));
}
