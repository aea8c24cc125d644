// @ts-check
import { onCommentEnd, onCommentStart } from '../presets/hash-comment-base.js'
export const keywords = new Set(['false','true'])
export const quotedKeys = true
export { onCommentEnd, onCommentStart }
