# shellcheck shell=bash disable=SC2154  # __m_k and __m_g are set by a saved state
# The machinery of a shell that is bash: tells the host how each action ended, and saves what the next shell needs.
# A new shell reads this from its standard input once, behind the state that it restores; the host puts in @STATE@, the
# folder for saved states, and @NONCE@, of the marker that answers. Descriptors: 6 /dev/null, 8 and 9 the connection.
#
# The agent's functions may go by any name, so each command is called as a builtin; no function replaces a keyword.
# declare -f saves all functions with every action, these included. So they are few; layout and comments cost nothing.
builtin readonly __m_D=@STATE@

# Save: what a shell must read to become like this one. The last line tells the slot, $1; a torn file lacks it.
__m_s() {
  builtin printf 'cd -- %q || __m_g=gone\n' "$PWD"
  builtin umask -p
  builtin export -p
  builtin declare -f
  builtin printf '__m_k=%s\n' "$1"
}

# Inform: the tools' state, as the marker's last field; nothing that could be taken for its end, nothing long.
__m_i() {
  IFS= builtin read -r -n 2049 __m_t <"$__m_D/tools"
  if [[ $__m_t == *[$'\036\037']* || ${#__m_t} -gt 2048 ]]; then __m_t=; fi
  __m_t=$'\037'$__m_t
}

# Mark the end of an action on both streams, then save. $1: nonce, $2: slot. Keeps the action's exit code.
__m() {
  builtin local __m_r=$? __m_w __m_p __m_t
  # Where "builtin" is not what it should be, expanding an unset variable ends the shell: nothing else is sure to.
  [[ ${__m_r?} ]]
  builtin set +exuvfC
  IFS=$' \t\n'
  # Without its own eval the shell cannot take another action: it says so, saves, and ends.
  if ! builtin eval || builtin declare -F eval >&6; then
    __m_w=:eval
    builtin unset -f eval
  fi
  if [[ $PWD != *[$'\036\037']* && ${#PWD} -le 1024 ]]; then __m_p=$PWD; fi
  # The slot was saved after the action before the last: whatever a background job changes since then is not missed.
  if [[ -f $__m_D/tools && ! $__m_D/$2 -nt $__m_D/tools ]]; then __m_i; fi
  builtin printf '\036%s:\036' "$1" >&9
  builtin printf '\036%s:%d:%d%s\037%s%s\036' "$1" "$__m_r" $$ "$__m_w" "$__m_p" "$__m_t" >&8
  # The host goes on meanwhile; it uses the slots in turn, so that one is always complete.
  if [[ -e $__m_D/$2 && ! -f $__m_D/$2 ]]; then builtin command -p rm -rf "$__m_D/$2"; fi
  __m_s "$2" >|"$__m_D/$2"
  if [[ $__m_w ]]; then builtin exit; fi
  builtin return "$__m_r"
}
builtin readonly -f __m_s __m_i __m

# A shell that an action ends saves itself on the way out, to slot x. Text, not a function: it is not saved.
builtin trap '
  builtin printf -v __m_r x
  [[ ${__m_r?the shell cannot work without its own "builtin"} ]]
  builtin set +exuvfC
  if [[ -e $__m_D/x && ! -f $__m_D/x ]]; then builtin command -p rm -rf "$__m_D/x"; fi
  __m_s x >|"$__m_D/x"
' EXIT

# Save once, to slot b, and answer: process id, which slot was restored (__m_k), whether its directory is gone (__m_g).
{
  builtin command -p mkdir -p "$__m_D"
  builtin command -p rm -rf "$__m_D/x" "$__m_D/b"
  __m_s b >|"$__m_D/b"
  __m_p=$PWD __m_t=$'\037'
  if [[ -f $__m_D/tools ]]; then __m_i; fi
  if [[ $__m_p == *[$'\036\037']* || ${#__m_p} -gt 1024 ]]; then __m_p=; fi
  builtin printf '\036@NONCE@:\036' >&9
  builtin printf '\036@NONCE@:%s:%s:%s\037%s%s\036' $$ "$__m_k" "$__m_g" "$__m_p" "$__m_t" >&8
  builtin unset __m_k __m_g __m_p __m_t
} 2>&6
