import { axisBottom } from 'd3-axis';
import { type ScaleLinear, scaleLinear } from 'd3-scale';
import { create, select, type Selection } from 'd3-selection';

// Draws timelines of locks, for the board and for the lab. timeline.css has the style of the marks.

type Group = Selection<SVGGElement, undefined, null, undefined>;

/** The height of a bar. */
const BAR = 20;

/** The height of the axis, which is below the lanes. */
const AXIS = 26;

export interface TimelineOptions {
  /** Text for screen readers, which skip a drawing without a title. */
  readonly title?: string;
  readonly from: number;
  readonly to: number;
  readonly width: number;
  /** Height of all lanes together. */
  readonly height: number;
}

/** A drawing with time from left to right, in milliseconds. */
export class Timeline {
  readonly width: number;
  readonly from: number;
  readonly to: number;
  readonly #svg: Selection<SVGSVGElement, undefined, null, undefined>;
  readonly #scale: ScaleLinear<number, number>;
  readonly #height: number;

  constructor({ title, from, to, width, height }: TimelineOptions) {
    [this.from, this.to, this.width, this.#height] = [from, to, width, height];
    this.#scale = scaleLinear()
      .domain([from, to])
      .range([10, width - 18]);
    this.#svg = create('svg').attr('class', 'timeline').attr('width', width).attr('height', height);
    if (title === undefined) this.#svg.attr('aria-hidden', 'true');
    else this.#svg.attr('role', 'img').append('title').text(title);
    addPatterns(this.#svg.append('defs'));
  }

  /** Horizontal position of a moment. A moment outside of the timeline is at its edge. */
  x(at: number): number {
    return this.#scale(Math.min(Math.max(at, this.from), this.to));
  }

  lane(top: number, middle: number): Lane {
    return new Lane(this.#svg.append('g').attr('transform', `translate(0,${top})`), this, middle);
  }

  /** Draws vertical lines at these times. They are behind what is drawn later. */
  grid(times: readonly number[]): void {
    const lines = this.#svg.append('g').attr('class', 'grid');
    for (const at of times)
      lines
        .append('line')
        .attr('x1', this.x(at))
        .attr('y1', 0)
        .attr('x2', this.x(at))
        .attr('y2', this.#height);
  }

  /**
   * Draws the axis below the lanes. `domain` has the first and the last value on the axis. These values may count from another moment
   * than the times of the timeline.
   *
   * @param values - the values with a label; without them there are round ones
   */
  axis(
    domain: readonly [number, number],
    format: (value: number) => string,
    values?: readonly number[],
  ): void {
    const scale = scaleLinear().domain(domain).range(this.#scale.range());
    const axis = axisBottom(scale).tickFormat((value) => format(value.valueOf()));
    if (values) axis.tickValues(values);
    else axis.ticks(Math.max(3, this.width / 90));
    this.#svg
      .attr('height', this.#height + AXIS)
      .append('g')
      .attr('class', 'axis')
      .attr('transform', `translate(0,${this.#height + 4})`)
      .call(axis);
  }

  showIn(target: HTMLElement): void {
    const node = this.#svg.node();
    if (node) target.replaceChildren(node);
  }
}

/** A row of the drawing, with the events of one process or one node. */
export class Lane {
  constructor(
    private readonly group: Group,
    private readonly timeline: Timeline,
    /** Vertical position of the bars, from the top. */
    readonly middle: number,
  ) {}

  /** Draws the time for which the process or the node exists. */
  life(from: number, to: number): void {
    const { middle } = this;
    this.line('lane', this.#x(from), middle, this.#x(to), middle);
  }

  name(name: string, y = 12): void {
    this.text('name halo', this.#x(this.timeline.from), y, name);
  }

  /** Writes the name of a key, and beside it the name of a process. */
  names(key: string, process: string, y: number): void {
    const text = this.group.append('text').attr('class', 'name halo').attr('x', this.#x(this.timeline.from));
    text.attr('y', y).append('tspan').attr('class', 'key-name').text(key);
    text.append('tspan').attr('class', 'process-name').attr('dx', 10).text(process);
  }

  /** Draws a time of work. Work without the lock is hatched. */
  bar(kind: 'work' | 'without-lock', from: number, to: number, title?: string): void {
    if (to > from) this.#rect(kind, from, to, BAR, title);
  }

  waits(from: number, to: number, title?: string): void {
    this.#rect('waits', from, to, BAR, title);
  }

  asleep(from: number, to: number, height = BAR + 6): void {
    this.#rect('asleep', from, to, height);
  }

  /** Draws the time for which the store keeps the lock. */
  kept(from: number, to: number): void {
    const y = this.middle + 14;
    this.line('ttl', this.#x(from), y, this.#x(to), y);
  }

  /** Draws the end of the time for which the store keeps the lock. */
  end(at: number): void {
    this.line('ttl-end', this.#x(at), this.middle - 14, this.#x(at), this.middle + 18);
  }

  renewed(at: number): void {
    this.group
      .append('path')
      .attr('class', 'ttl')
      .attr('d', `M${this.#x(at) - 4},${this.middle + 16}l4,-5l4,5z`)
      .attr('fill', 'none')
      .attr('stroke-width', 1.5);
  }

  /** Draws a call that was skipped. */
  skipped(at: number, title?: string): void {
    const x = this.#x(at);
    withTitle(this.line('skip', x, this.middle + 12, x, this.middle + 20), title);
  }

  /** Draws an attempt or a renewal for which too few nodes voted. */
  unavailable(at: number, title?: string): void {
    withTitle(this.circle('skip', at, this.middle + 16, 2.5).attr('fill', 'none'), title);
  }

  /** Draws the moment at which a holder has lost the lock. */
  lost(at: number, word: string): void {
    const x = this.#x(at);
    this.text(
      'name halo',
      x,
      this.middle - 14,
      `! ${word}`,
      x > this.#x(this.timeline.to) - 90 ? 'end' : 'start',
    );
  }

  /** Draws the line from one holder to the next holder, which had waited for the lock. */
  handedOver(at: number, height: number): void {
    this.line('handed-over', this.#x(at), this.middle, this.#x(at), this.middle + height);
  }

  /** Draws a band over a time, such as a time with more holders than allowed. */
  band(className: string, from: number, to: number, height: number): void {
    this.group
      .append('rect')
      .attr('class', className)
      .attr('x', this.#x(from))
      .attr('y', 0)
      .attr('width', this.#x(to) - this.#x(from))
      .attr('height', height);
  }

  circle(
    className: string,
    at: number,
    y: number,
    radius: number,
  ): Selection<SVGCircleElement, undefined, null, undefined> {
    return this.group
      .append('circle')
      .attr('class', className)
      .attr('cx', this.#x(at))
      .attr('cy', y)
      .attr('r', radius);
  }

  path(className: string, d: string): Selection<SVGPathElement, undefined, null, undefined> {
    return this.group.append('path').attr('class', className).attr('d', d);
  }

  line(
    className: string,
    x1: number,
    y1: number,
    x2: number,
    y2: number,
  ): Selection<SVGLineElement, undefined, null, undefined> {
    return this.group
      .append('line')
      .attr('class', className)
      .attr('x1', x1)
      .attr('y1', y1)
      .attr('x2', x2)
      .attr('y2', y2);
  }

  text(className: string, x: number, y: number, content: string, anchor = 'start'): void {
    this.group
      .append('text')
      .attr('class', className)
      .attr('x', x)
      .attr('y', y)
      .attr('text-anchor', anchor)
      .text(content);
  }

  cross(at: number, size: number, title?: string): void {
    const x = this.#x(at);
    const d = `M${x - size},${this.middle - size}l${2 * size},${2 * size}m0,${-2 * size}l${-2 * size},${2 * size}`;
    withTitle(this.path('cross', d), title);
  }

  #rect(className: string, from: number, to: number, height: number, title?: string): void {
    const [left, right] = [this.#x(from), this.#x(to)];
    const rect = this.group
      .append('rect')
      .attr('class', className)
      .attr('x', left)
      .attr('y', this.middle - height / 2)
      .attr('width', Math.max(1, right - left))
      .attr('height', height);
    withTitle(rect, title);
  }

  #x(at: number): number {
    return this.timeline.x(at);
  }
}

/** Adds a tooltip to a mark. */
function withTitle<Mark extends SVGGraphicsElement>(
  mark: Selection<Mark, undefined, null, undefined>,
  title?: string,
): void {
  if (title !== undefined) mark.append('title').text(title);
}

/** The marks as separate drawings of 26 by 18 pixels, for a legend. */
export const MARKS = {
  work: '<rect class="work" x="1" y="4" width="24" height="10"/>',
  withoutLock: '<rect class="without-lock" x="1" y="4" width="24" height="10"/>',
  kept: '<line class="ttl" x1="1" y1="9" x2="25" y2="9"/>',
  renewed: '<path class="ttl" d="M9,13l4,-5l4,5z" fill="none" stroke-width="1.5"/>',
  skipped: '<line class="skip" x1="13" y1="4" x2="13" y2="14"/>',
  unavailable: '<circle class="skip" fill="none" cx="13" cy="9" r="3"/>',
  waits: '<rect class="waits" x="1" y="4" width="24" height="10"/>',
  asleep: '<rect class="asleep" x="1" y="3" width="24" height="12"/>',
  handedOver: '<line class="handed-over" x1="13" y1="1" x2="13" y2="17"/>',
  lost: '<text class="name" x="10" y="14">!</text>',
  forced: '<path class="cross" d="M8,4l10,10m0,-10l-10,10"/>',
  token: '<text class="small" x="0" y="13">#12</text>',
} as const;

/** Draws a legend of marks. The marks look as in the timeline on the same page, and use its patterns. */
export function drawLegend(
  target: HTMLElement,
  items: readonly (readonly [mark: string, meaning: string])[],
): void {
  for (const [mark, meaning] of items) {
    const item = select(target).append('li');
    const svg = item.append('svg').attr('class', 'timeline').attr('aria-hidden', 'true');
    svg.attr('width', 26).attr('height', 18).html(mark);
    item.append('span').text(meaning);
  }
}

function addPatterns(defs: Selection<SVGDefsElement, undefined, null, undefined>): void {
  const pattern = (id: string, size: number): Selection<SVGPatternElement, undefined, null, undefined> => {
    const made = defs.append('pattern').attr('id', id).attr('patternUnits', 'userSpaceOnUse');
    made.attr('width', size).attr('height', size);
    made.append('rect').attr('class', 'pattern-ground').attr('width', size).attr('height', size);
    return made;
  };
  pattern('hatched', 7)
    .attr('patternTransform', 'rotate(45)')
    .append('rect')
    .attr('class', 'pattern-bad')
    .attr('width', 3)
    .attr('height', 7);
  pattern('dots', 6).append('circle').attr('class', 'pattern-dot').attr('cx', 3).attr('cy', 3).attr('r', 1);
}
