/** What antennas of base stations take off beside their beams: the pattern of 3GPP TR 38.901. */

/** @import {Station} from "./task.js" */

const BEAM_WIDTH = 65; // degrees, where the azimuth alone is known
const FRONT_TO_BACK = 30; // dB: the most that is lost in any direction
const AT_THE_MAST = 1; // metres; from nearer, a position tells no direction

/**
 * The pattern of a station as a function of the place on the ground, in dB: A(φ) =
 * −min(12 (φ/φ₃)², 30), with φ the angle from the azimuth.
 *
 * @param {Station} station
 * @returns {(x: number, y: number) => number}
 */
export function losses({ x: mastX, y: mastY, azimuth_deg: azimuth, beam_width_deg: width }) {
  if (azimuth === null) return () => 0;
  return (x, y) => {
    const [east, north] = [x - mastX, y - mastY];
    if (Math.sqrt(east * east + north * north) < AT_THE_MAST) return 0;
    const bearing = Math.atan2(east, north) * (180 / Math.PI); // clockwise from north
    const beside = modulo(bearing - azimuth + 180, 360) - 180;
    const turned = beside / (width ?? BEAM_WIDTH);
    return -Math.min(12 * (turned * turned), FRONT_TO_BACK);
  };
}

/**
 * The rest of a division as Python has it: never negative.
 *
 * @param {number} value
 * @param {number} by
 */
function modulo(value, by) {
  const rest = value % by;
  return rest < 0 ? rest + by : rest;
}
