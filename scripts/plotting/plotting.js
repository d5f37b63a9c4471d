// What the explorer's page uses of its plotting libraries; `make page` bundles it.
export { axisBottom, axisLeft, axisRight } from "d3-axis";
export { format } from "d3-format";
export {
  geoEqualEarth,
  geoEqualEarthRaw,
  geoEquirectangular,
  geoEquirectangularRaw,
  geoGraticule,
  geoMercator,
  geoMercatorRaw,
  geoOrthographic,
  geoPath,
  geoRotation,
  geoStereographic,
} from "d3-geo";
export { scaleLinear, scaleLog, scaleUtc } from "d3-scale";
export {
  interpolateCividis,
  interpolateGreys,
  interpolateInferno,
  interpolateMagma,
  interpolatePlasma,
  interpolateBrBG,
  interpolatePuOr,
  interpolateRdBu,
  interpolateViridis,
  schemeTableau10,
  schemeSet3,
} from "d3-scale-chromatic";
export { select } from "d3-selection";
export { feature, mesh } from "topojson-client";
export { utcFormat } from "d3-time-format";
export { default as uPlot } from "uplot";
