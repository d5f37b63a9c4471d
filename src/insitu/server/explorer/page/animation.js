// An animation of a picture along one dimension as a GIF, with title, colour bar and source in each frame.

import { paintPicture, saveBlob, fileName } from "./downloads.js";
import { encodeGif } from "./gif.js";
import { contextOf } from "./raster.js";
import { sizeOf } from "./plane.js";
import { animatedDimensions } from "./sampled_range.js";

/** @import { FieldView } from "./field_view.js" */
/** @import { State } from "./address.js" */

const MOST_FRAMES = 120; // of more positions, every n-th
const PAUSE = 20; // hundredths of a second for a frame

/**
 * Draw every position along a dimension and download them as a GIF. The colours keep the range that they have now.
 *
 * @param {FieldView} view
 * @param {(done: number, all: number) => void} onprogress
 * @param {AbortSignal} signal ends it without a file
 */
export async function downloadAnimation(view, onprogress, signal) {
  const dim = animatedDimensions(view.plane)[0];
  if (!dim || !view.colours) throw new Error("There is no dimension to animate: all are drawn or reduced.");
  const before = view.state;
  await view.sampledRange.pending;
  const { low, high } = view.colours;
  const size = sizeOf(view.variable, dim);
  const step = Math.ceil(size / MOST_FRAMES);
  const positions = Array.from({ length: Math.ceil(size / step) }, (_, at) => at * step);
  /** @type {ImageData[]} */
  const frames = [];
  try {
    for (const [at, position] of positions.entries()) {
      if (signal.aborted) return;
      /** @type {State} */
      const state = { ...before, low, high, index: { ...before.index, [dim]: position } };
      await view.update(state);
      await view.overlay.pending;
      if (!view.answer || view.problem.childElementCount) throw new Error(`The picture of position ${position} cannot be drawn.`);
      const canvas = await paintPicture(view, 1);
      // All frames have the size of the first.
      const { width, height } = frames[0] ?? canvas;
      frames.push(contextOf(canvas).getImageData(0, 0, width, height));
      onprogress(at + 1, positions.length);
    }
  } finally {
    await view.update(before);
  }
  saveBlob(new Blob([encodeGif(frames, PAUSE)], { type: "image/gif" }), fileName(view.variable, "gif"));
}
