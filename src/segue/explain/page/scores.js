// The attention scores of one head, computed from its queries and keys: a pair or a row at a time, never the whole matrix.
class Head {
  constructor(side, layer, head, stream) {
    const maps = SIDES[side].maps;
    this.maps = maps;
    this.side = side;
    this.stream = stream;
    const own = this.parts(bytesOf(side, `${layer}-${head}-${stream}`), stream === 'content');
    this.query = own.query;
    this.logSum = own.logSum;
    const context = stream === 'content' ? own : this.parts(bytesOf(side, `${layer}-${head}-content`), true);
    Object.assign(this, { key: context.key, contentBias: context.contentBias, position: context.position, positionBias: context.positionBias, distanceBias: context.distanceBias });
    this.segmentOf = new Int32Array(SIDES[side].tokens.length);
    maps.segments.forEach((segment, number) => this.segmentOf.fill(number, segment.new, segment.stop));
    this.masks = new Map();
  }

  // Order of the numbers: log sums, queries, keys, u·k, then the values for each distance.
  parts(bytes, context) {
    const { segments, width, distances, terms, bucket_count: buckets } = this.maps;
    const halves = new Uint16Array(bytes.buffer);
    const found = { logSum: [], query: [], key: [], contentBias: [] };
    let at = 0;
    const lengths = segments.map((segment) => segment.stop - segment.new);
    for (const length of lengths) { found.logSum.push(new Float32Array(bytes.buffer, at * 2, length)); at += 2 * length; }
    const take = (count) => halves.subarray(at, (at += count));
    for (const length of lengths) found.query.push(take(length * width));
    if (!context) return found;
    for (const segment of segments) found.key.push(take((segment.stop - segment.keys) * width));
    if (terms.includes('content_bias')) for (const segment of segments) found.contentBias.push(take((segment.stop - segment.keys) * buckets));
    if (terms.includes('position')) found.position = take(distances * width);
    if (terms.includes('position_bias')) found.positionBias = take(distances);
    if (terms.includes('distance_bias')) found.distanceBias = take(distances);
    return found;
  }

  sees(q, k) {
    const number = this.segmentOf[q];
    const segment = this.maps.segments[number];
    if (k < segment.first || k >= segment.stop) return false;
    if (!this.masks.has(number)) this.masks.set(number, bytesOf(this.side, `mask-${number}-${this.stream}`));
    const bit = (q - segment.new) * (segment.stop - segment.first) + (k - segment.first);
    return ((this.masks.get(number)[bit >> 3] >> (bit & 7)) & 1) === 1;
  }

  value(term, q, k) {
    const { segments, width, longest } = this.maps;
    const number = this.segmentOf[q];
    const own = k >= segments[number].keys ? number : this.segmentOf[k];
    const place = k - segments[own].keys;
    const start = (q - segments[number].new) * width;
    const query = this.query[number];
    let sum = 0;
    switch (term) {
      case 'content': {
        const key = this.key[own];
        for (let n = 0, at = place * width; n < width; n += 1) sum += HALF[query[start + n]] * HALF[key[at + n]];
        return sum;
      }
      case 'position':
        for (let n = 0, at = (longest - (q - k)) * width; n < width; n += 1) sum += HALF[query[start + n]] * HALF[this.position[at + n]];
        return sum;
      case 'content_bias':
        if (!this.maps.buckets.length) return HALF[this.contentBias[own][place]];
        return HALF[this.contentBias[own][place * this.maps.bucket_count + this.maps.buckets[longest - (q - k)]]];
      case 'position_bias': return HALF[this.positionBias[longest - (q - k)]];
      case 'distance_bias': return HALF[this.distanceBias[longest - (q - k)]];
      case 'probability': return Math.exp(this.value('score', q, k) - this.logSum[number][q - segments[number].new]);
      default:
        for (const name of this.maps.terms) sum += this.value(name, q, k);
        return sum;
    }
  }

  // One row: the values of a query for each token; NaN for tokens that it may not attend to.
  row(term, q) {
    const found = new Float32Array(this.segmentOf.length).fill(NaN);
    const segment = this.maps.segments[this.segmentOf[q]];
    for (let k = segment.first; k < segment.stop; k += 1) if (this.sees(q, k)) found[k] = this.value(term, q, k);
    return found;
  }
}

const heads = new Map();
function headOf(side, layer, head, stream) {
  const name = `${side}-${layer}-${head}-${stream}`;
  if (!heads.has(name)) {
    if (heads.size > 8) heads.delete(heads.keys().next().value);
    heads.set(name, new Head(side, layer, head, stream));
  }
  return heads.get(name);
}
