"use strict";
/* The data that a page carries in its own elements. */

function readData() {
  return JSON.parse(document.getElementById("data").textContent);
}

/** The bytes of an element with base64. */
function readBytes(name) {
  const binary = atob(document.getElementById(name).textContent);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

/** Weights by name, from the numbers in an element, one after the other, and tensors: names with their shapes. */
function readWeights(name, tensors) {
  const numbers = readHalves(name);
  let begin = 0;
  const next = (size) => numbers.subarray(begin, (begin += size));
  return Object.fromEntries(
    tensors.map(([name, shape]) => [name, { shape, data: next(shape.reduce((a, b) => a * b, 1)) }]),
  );
}

/** Numbers of 16 bits: 1 for the sign, 5 for the power of 2, 10 for the digits. IEEE 754, binary16 */
function halfToNumber(bits) {
  const [sign, power, digits] = [bits >> 15 ? -1 : 1, (bits >> 10) & 31, bits & 1023];
  if (power === 0) return sign * digits * 2 ** -24;
  if (power === 31) return digits ? NaN : sign * Infinity;
  return sign * (1 + digits / 1024) * 2 ** (power - 15);
}

/** All numbers of 16 bits in an element, by a table of the 65,536 values that they can have. */
function readHalves(name) {
  const table = Float32Array.from({ length: 1 << 16 }, (_, bits) => halfToNumber(bits));
  const bytes = readBytes(name);
  const numbers = new Float32Array(bytes.length / 2);
  for (let i = 0; i < numbers.length; i++) numbers[i] = table[bytes[2 * i] | (bytes[2 * i + 1] << 8)];
  return numbers;
}
