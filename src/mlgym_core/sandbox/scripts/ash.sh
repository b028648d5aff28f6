exec 6>/dev/null 7</dev/null 8>&1 9>&2
readonly __m_D=@STATE@
__m_q() { local s=$1 o=; while :; do case $s in *\'*) o="$o${s%%\'*}'\\''"; s=${s#*\'};; *) break;; esac; done; printf "'%s'" "$o$s"; }
__m_s() { printf 'cd -- '; __m_q "$PWD"; printf ' || __m_g=gone\numask '; umask; export -p; printf '__m_k=%s\n' "$1"; }
__m() { local r=$?; set +exuvfC; unset IFS; printf '\036%s:\036' "$1" >&9; printf '\036%s:%d:%d\036' "$1" "$r" $$ >&8; __m_s "$2" >|"$__m_D/$2"; return "$r"; }
__m_x() { set +exuvfC; __m_s x >|"$__m_D/x"; }
trap __m_x EXIT
