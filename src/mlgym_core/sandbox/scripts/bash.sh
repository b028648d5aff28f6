exec 6>/dev/null 7</dev/null 8>&1 9>&2
readonly __m_D=@STATE@
__m_s() { builtin printf 'cd -- %q || __m_g=gone\n' "$PWD"; builtin umask -p; builtin export -p; builtin declare -f; builtin printf '__m_k=%s\n' "$1"; }
__m() { builtin local r=$?; builtin set +exuvfC; IFS=$' \t\n'; builtin printf '\036%s:\036' "$1" >&9; builtin printf '\036%s:%d:%d\036' "$1" "$r" $$ >&8; __m_s "$2" >|"$__m_D/$2"; builtin return "$r"; }
__m_x() { builtin set +exuvfC; __m_s x >|"$__m_D/x"; }
__m_l() { if builtin command -p head -c "$1" | { builtin command -p cat >|"$__m_D/c" || { builtin command -p cat >/dev/null; builtin false; }; }; then __m_c=$__m_D/c; else __m_c=/the-command-could-not-be-stored; fi; }
__m_f() { if [[ -e $2 && ! -f $2 ]]; then builtin echo "$2: not a regular file" >&2; builtin command -p head -c "$1" >/dev/null; builtin return 1; fi; builtin command -p head -c "$1" | { builtin command -p cat >|"$2" || { builtin command -p cat >/dev/null; builtin false; }; }; }
readonly -f __m_s __m __m_x __m_l __m_f
builtin trap __m_x EXIT
