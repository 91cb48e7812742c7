from __future__ import annotations

from typing import Any

from django.http import HttpRequest, JsonResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from shop.models import Customer
from shop.tasks import send_welcome


@csrf_exempt
@require_POST
def sign_up(request: HttpRequest) -> JsonResponse:
    customer = Customer.objects.create(email=request.POST["email"])
    result = send_welcome.enqueue(customer.id)
    return JsonResponse({"customer": customer.id, "task": result.id}, status=202)


def show_task(request: HttpRequest, result_id: str) -> JsonResponse:
    result: Any = send_welcome.get_result(result_id)
    value = result.return_value if result.status == "SUCCESSFUL" else None
    return JsonResponse({"status": result.status, "value": value})
